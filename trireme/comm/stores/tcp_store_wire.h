// The bytes between the store's client and server.
//
//   server: 8 bytes kStoreMagic, 32 bytes nonce
//   client: 32 bytes nonce, 32 bytes HMAC(secret, "client" + server nonce + client nonce)
//   server: 32 bytes HMAC(secret, "server" + server nonce + client nonce), or 32 zeros: refused
// then requests and replies in turn: a header of 20 bytes, little-endian, and the key's and value's
// bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/comm/stores/hmac.h"

namespace trireme::comm {

// What one request may carry, in bytes.
inline constexpr size_t kMaxStoreKey = 1024;
inline constexpr size_t kMaxStoreValue = size_t{1} << 20;

}  // namespace trireme::comm

namespace trireme::comm::wire {

inline constexpr std::string_view kStoreMagic = "trstore1";
inline constexpr size_t kHelloBytes = 8 + 32;
inline constexpr size_t kAnswerBytes = 64;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kHeaderBytes = 20;

enum class Kind : uint32_t { kSet = 1, kGet = 2, kAdd = 3, kDone = 16, kTimeout = 17, kNoNumber = 18, kTooLarge = 19 };

struct Header {
  uint32_t kind = 0;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  int64_t number = 0;  // get: milliseconds to wait; add: the amount, and the sum in the reply
};

inline void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

inline uint64_t take(std::string_view in, size_t at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= uint64_t{static_cast<uint8_t>(in[at + static_cast<size_t>(i)])} << (8 * i);
  }
  return value;
}

inline std::string message(Kind kind, std::string_view key, std::string_view value, int64_t number) {
  std::string out;
  out.reserve(kHeaderBytes + key.size() + value.size());
  put(out, static_cast<uint32_t>(kind), 4);
  put(out, key.size(), 4);
  put(out, value.size(), 4);
  put(out, static_cast<uint64_t>(number), 8);
  out += key;
  out += value;
  return out;
}

inline Header header(std::string_view in) {
  return {.kind = static_cast<uint32_t>(take(in, 0, 4)),
          .key_bytes = static_cast<uint32_t>(take(in, 4, 4)),
          .value_bytes = static_cast<uint32_t>(take(in, 8, 4)),
          .number = static_cast<int64_t>(take(in, 12, 8))};
}

// What stands at the front of the bytes that came.
enum class Found { kPart, kWhole, kImpossible };

// A request of a proven client. It is whole when nothing is left over: requests come one at a time.
struct Request {
  Found found = Found::kPart;
  Kind kind = Kind::kSet;
  std::string_view key;  // of the bytes that were read
  std::string_view value;
  int64_t number = 0;
};

inline Request read_request(std::string_view in) {
  if (in.size() < kHeaderBytes) return {};
  const Header head = header(in);
  const bool known = head.kind >= static_cast<uint32_t>(Kind::kSet) && head.kind <= static_cast<uint32_t>(Kind::kAdd);
  const size_t whole = kHeaderBytes + size_t{head.key_bytes} + head.value_bytes;
  if (!known || head.key_bytes > kMaxStoreKey || head.value_bytes > kMaxStoreValue || in.size() > whole) {
    return {.found = Found::kImpossible};
  }
  if (in.size() < whole) return {};
  in.remove_prefix(kHeaderBytes);
  return {.found = Found::kWhole,
          .kind = static_cast<Kind>(head.kind),
          .key = in.substr(0, head.key_bytes),
          .value = in.substr(head.key_bytes),
          .number = head.number};
}

// Whether a header is one that a server sends.
inline bool is_reply(const Header& head) {
  const auto kind = static_cast<Kind>(head.kind);
  const bool known =
      kind == Kind::kDone || kind == Kind::kTimeout || kind == Kind::kNoNumber || kind == Kind::kTooLarge;
  return known && head.key_bytes == 0 && head.value_bytes <= kMaxStoreValue;
}

inline std::string bytes_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

inline Digest digest_of(std::string_view bytes) {
  Digest digest{};
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<uint8_t>(bytes[i]);
  return digest;
}

// `side` is "client" or "server": a proof cannot be sent back to the one who made it.
inline Digest proof(const Secret& secret, std::string_view side, std::string_view server_nonce,
                    std::string_view client_nonce) {
  std::string text(side);
  text += server_nonce;
  text += client_nonce;
  return hmac_sha256(secret, text);
}

}  // namespace trireme::comm::wire
