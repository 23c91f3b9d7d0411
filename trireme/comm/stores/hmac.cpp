#include "trireme/comm/stores/hmac.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"

namespace trireme::comm {

Digest sha256(std::string_view data) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(data)));
  return std::bit_cast<Digest>(hash.finish());
}

Digest hmac_sha256(const Secret& key, std::string_view data) {
  constexpr size_t kBlock = 64;
  std::string inner(kBlock, '\x36');
  std::string outer(kBlock, '\x5c');
  for (size_t i = 0; i < key.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ key[i]);
    outer[i] = static_cast<char>(outer[i] ^ key[i]);
  }
  const Digest first = sha256(inner.append(data));
  return sha256(outer.append(reinterpret_cast<const char*>(first.data()), first.size()));
}

bool equal_in_constant_time(const Digest& a, const Digest& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = difference | (a[i] ^ b[i]);
  return difference == 0;
}

Secret random_secret() {
  Secret secret;
  const ssize_t got = getrandom(secret.data(), secret.size(), 0);  // up to 256 bytes come whole
  if (got != static_cast<ssize_t>(secret.size())) {
    fail(ErrorKind::kIo, "job secret: the system gives no random bytes ({})", std::strerror(errno));
  }
  return secret;
}

std::string to_hex(const Secret& secret) {
  std::string hex;
  for (const uint8_t byte : secret) hex += fmt::format("{:02x}", byte);
  return hex;
}

Secret secret_from_hex(std::string_view hex) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  Secret secret{};
  require(hex.size() == 2 * secret.size(), "job secret: it has {} characters; it must have {} hexadecimal digits",
          hex.size(), 2 * secret.size());
  for (size_t i = 0; i < hex.size(); ++i) {
    const size_t digit = kDigits.find(hex[i]);
    require(digit != std::string_view::npos, "job secret: character {} is not one of the digits 0-9 and a-f", i);
    secret[i / 2] = static_cast<uint8_t>(secret[i / 2] << 4 | digit);
  }
  return secret;
}

}  // namespace trireme::comm
