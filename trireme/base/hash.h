// Checksums and hashes of bytes: CRC32C to find damage, XXH3 to compare quickly, SHA-256 to name
// content.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// CRC32C (Castagnoli). `crc` is the checksum of the bytes before these, so that long data may come
// in parts. Uses the SSE4.2 instruction where the processor has it.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t crc = 0);

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);  // XXH3, 64 bits
uint64_t hash64(std::string_view text, uint64_t seed = 0);

// Of a text that comes in parts, the hash64 of all of it.
class TextHash {
 public:
  TextHash();
  ~TextHash();
  TextHash(const TextHash&) = delete;
  TextHash& operator=(const TextHash&) = delete;

  void add(std::string_view text);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Sha256 {
 public:
  using Digest = std::array<std::byte, 32>;

  void update(std::span<const std::byte> bytes);
  Digest finish();  // the object starts again afterwards

 private:
  void block(const std::byte* bytes);

  std::array<uint32_t, 8> state_ = kStart;
  std::array<std::byte, 64> buffer_{};
  uint64_t length_ = 0;

  static constexpr std::array<uint32_t, 8> kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

std::string sha256_hex(std::string_view bytes);  // 64 lower-case digits

}  // namespace trireme
