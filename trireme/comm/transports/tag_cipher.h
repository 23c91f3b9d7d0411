// Tags that only the ranks of one job can make. UCX matches messages by 64 bits and asks nobody who connects for a
// secret; so the bits that say what a message is are enciphered with a key of the job, and what a stranger sends
// matches a receive only by chance, one in 2^64 for each receive that waits. The cipher is a permutation: tags that
// differ stay different.
//
// XTEA, R. Needham and D. Wheeler, "Tea extensions", Cambridge, 1997: a block of 64 bits, a key of 128, 32 rounds of
// two halves.
#pragma once

#include <array>
#include <cstdint>

namespace trireme::comm {

using TagKey = std::array<uint32_t, 4>;

uint64_t encipher(uint64_t tag, const TagKey& key);

}  // namespace trireme::comm
