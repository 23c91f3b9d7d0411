#include "trireme/data/permutation.h"

#include <algorithm>
#include <bit>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme::data {
namespace {

constexpr size_t kRounds = 8;

// A cheap keyed mixing of 32 bits (the finaliser of MurmurHash3); the quality needed is that of a
// shuffle.
uint32_t round_function(uint32_t value, uint32_t round_key) {
  uint32_t x = value + round_key;
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t id) : size_(size) {
  require(size >= 0, "a permutation of {} elements; the size must not be negative", size);
  const auto bits = static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(size > 1 ? size - 1 : 1)));
  half_bits_ = (bits + 1) / 2;
  const auto key = key_of({seed, id});
  for (size_t r = 0; r < kRounds; r += 4) {
    const auto words = philox({static_cast<uint32_t>(r), 0, 0, 0}, key);
    std::copy(words.begin(), words.end(), round_keys_.begin() + static_cast<std::ptrdiff_t>(r));
  }
}

int64_t Permutation::operator()(int64_t index) const {
  invariant(index >= 0 && index < size_, "element {} of a permutation of {}", index, size_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half_bits_;
    uint64_t right = x & mask;
    for (const uint32_t round_key : round_keys_) {
      const uint64_t next = left ^ (round_function(static_cast<uint32_t>(right), round_key) & mask);
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(x);
}

}  // namespace trireme::data
