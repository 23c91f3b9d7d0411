#include "trireme/base/hash.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace trireme {
namespace {

constexpr uint32_t kCastagnoli = 0x82F63B78U;  // reflected

struct ByteTable {
  uint32_t at[8][256];
};

// at[0][b] is the CRC of byte b; at[k][b] that of b followed by k zero bytes.
ByteTable make_byte_table() {
  ByteTable table{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kCastagnoli : 0U);
    table.at[0][b] = crc;
  }
  for (uint32_t b = 0; b < 256; ++b) {
    for (size_t k = 1; k < 8; ++k) {
      const uint32_t before = table.at[k - 1][b];
      table.at[k][b] = (before >> 8) ^ table.at[0][before & 0xff];
    }
  }
  return table;
}

const ByteTable& byte_table() {
  static const ByteTable table = make_byte_table();
  return table;
}

uint64_t load64(const std::byte* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

#if defined(__x86_64__)
// The instruction takes three cycles but one can start in each, so three runs of kRun bytes go side
// by side; their sums are joined by multiplying with x^(8 kRun), a linear map kept as four tables.
constexpr size_t kRun = 2048;

struct ShiftTable {
  uint32_t at[4][256];
};

ShiftTable make_shift_table() {
  const auto& bytes = byte_table();
  std::array<uint32_t, 32> image{};  // of each bit, kRun zero bytes later
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = 1U << bit;
    for (size_t i = 0; i < kRun; ++i) crc = (crc >> 8) ^ bytes.at[0][crc & 0xff];
    image[bit] = crc;
  }
  ShiftTable table{};
  for (size_t k = 0; k < 4; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      uint32_t sum = 0;
      for (size_t bit = 0; bit < 8; ++bit) {
        if ((b >> bit & 1U) != 0) sum ^= image[k * 8 + bit];
      }
      table.at[k][b] = sum;
    }
  }
  return table;
}

uint32_t shift(const ShiftTable& table, uint32_t crc) {
  return table.at[0][crc & 0xff] ^ table.at[1][crc >> 8 & 0xff] ^ table.at[2][crc >> 16 & 0xff] ^
         table.at[3][crc >> 24];
}

[[gnu::target("sse4.2")]] uint32_t crc32c_sse(const std::byte* p, size_t size, uint32_t crc) {
  static const ShiftTable table = make_shift_table();
  uint64_t a = static_cast<uint32_t>(~crc);
  while (size >= 3 * kRun) {
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kRun; i += 8) {
      a = _mm_crc32_u64(a, load64(p + i));
      b = _mm_crc32_u64(b, load64(p + kRun + i));
      c = _mm_crc32_u64(c, load64(p + 2 * kRun + i));
    }
    a = shift(table, static_cast<uint32_t>(a)) ^ b;
    a = shift(table, static_cast<uint32_t>(a)) ^ c;
    p += 3 * kRun;
    size -= 3 * kRun;
  }
  for (; size >= 8; p += 8, size -= 8) a = _mm_crc32_u64(a, load64(p));
  auto rest = static_cast<uint32_t>(a);
  for (; size > 0; ++p, --size) rest = _mm_crc32_u8(rest, std::to_integer<uint8_t>(*p));
  return ~rest;
}
#endif

constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t crc) {
  const auto& t = byte_table();
  const std::byte* p = bytes.data();
  size_t size = bytes.size();
  crc = ~crc;
  if constexpr (std::endian::native == std::endian::little) {
    for (; size >= 8; p += 8, size -= 8) {
      const uint64_t word = load64(p) ^ crc;
      crc = 0;
      for (size_t k = 0; k < 8; ++k) crc ^= t.at[7 - k][word >> (8 * k) & 0xff];
    }
  }
  for (; size > 0; ++p, --size) crc = (crc >> 8) ^ t.at[0][(crc ^ std::to_integer<uint32_t>(*p)) & 0xff];
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_sse(bytes.data(), bytes.size(), crc);
#endif
  return crc32c_by_table(bytes, crc);
}

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t hash64(std::string_view text, uint64_t seed) {
  return hash64(std::as_bytes(std::span(text)), seed);
}

struct TextHash::State {
  XXH3_state_t of;
};

TextHash::TextHash() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->of);
}

TextHash::~TextHash() = default;

void TextHash::add(std::string_view text) {
  XXH3_64bits_update(&state_->of, text.data(), text.size());
}

uint64_t TextHash::value() const {
  return XXH3_64bits_digest(&state_->of);
}

void Sha256::update(std::span<const std::byte> bytes) {
  size_t used = length_ % buffer_.size();
  length_ += bytes.size();
  while (!bytes.empty()) {
    const size_t count = std::min(buffer_.size() - used, bytes.size());
    std::copy_n(bytes.begin(), count, buffer_.begin() + static_cast<std::ptrdiff_t>(used));
    bytes = bytes.subspan(count);
    used += count;
    if (used < buffer_.size()) return;
    block(buffer_.data());
    used = 0;
  }
}

void Sha256::block(const std::byte* bytes) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = 0;
    for (size_t k = 0; k < 4; ++k) w[i] = w[i] << 8 | std::to_integer<uint32_t>(bytes[i * 4 + k]);
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRoundConstants[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

Sha256::Digest Sha256::finish() {
  const uint64_t bits = length_ * 8;
  std::array<std::byte, 72> tail{};
  tail[0] = std::byte{0x80};
  const size_t used = length_ % 64;
  const size_t zeros = (used < 56 ? 56 : 120) - used;
  for (size_t i = 0; i < 8; ++i) tail[zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  update(std::span(tail).first(zeros + 8));
  Digest out;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  state_ = kStart;
  length_ = 0;
  return out;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(bytes)));
  std::string out;
  for (const std::byte b : sha.finish()) out += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return out;
}

}  // namespace trireme
