// Permutation: a bijection of [0, size) computed element by element from a key, without a table.
#pragma once

#include <array>
#include <cstdint>

namespace trireme::data {

// A Feistel network of eight rounds over the smallest even number of bits that holds the size, its
// round keys drawn from Philox under (seed, id); values outside the range are walked along their
// cycle back into it (fewer than four steps on average).
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, uint64_t id);

  int64_t size() const { return size_; }
  int64_t operator()(int64_t index) const;

 private:
  int64_t size_;
  uint32_t half_bits_ = 1;
  std::array<uint32_t, 8> round_keys_;
};

}  // namespace trireme::data
