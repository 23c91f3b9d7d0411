#include "trireme/comm/transports/tag_cipher.h"

namespace trireme::comm {

uint64_t encipher(uint64_t tag, const TagKey& key) {
  auto high = static_cast<uint32_t>(tag >> 32);
  auto low = static_cast<uint32_t>(tag);
  uint32_t sum = 0;
  for (int round = 0; round < 32; ++round) {
    high += ((low << 4 ^ low >> 5) + low) ^ (sum + key[sum & 3]);
    sum += 0x9e3779b9;
    low += ((high << 4 ^ high >> 5) + high) ^ (sum + key[sum >> 11 & 3]);
  }
  return static_cast<uint64_t>(high) << 32 | low;
}

}  // namespace trireme::comm
