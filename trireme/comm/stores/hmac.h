// HMAC-SHA256 (RFC 2104) for the handshake of the store, and the secret of a job.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::comm {

using Digest = std::array<uint8_t, 32>;
using Secret = std::array<uint8_t, 32>;  // 256 bits, known to the processes of one job only

Digest sha256(std::string_view data);
Digest hmac_sha256(const Secret& key, std::string_view data);
// Takes the same time wherever the first difference is.
bool equal_in_constant_time(const Digest& a, const Digest& b);

// From the system's generator.
Secret random_secret();
// 64 hexadecimal digits, and back; throws kInvalidArgument, never showing the text.
std::string to_hex(const Secret& secret);
Secret secret_from_hex(std::string_view hex);

}  // namespace trireme::comm
