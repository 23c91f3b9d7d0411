// Prefetches rows of memory that are read soon, a few at a time between pieces of other work, so that neither that work
// nor the reader waits for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme::cpu {

class RowsAhead {
 public:
  static constexpr size_t kMostBlocks = 5;

  // `rows` of `bytes` each, `stride` bytes apart, after what was added before; kMostBlocks times at most.
  void add(const void* first, int64_t rows, int64_t bytes, int64_t stride) {
    if (rows > 0) blocks_.at(count_++) = {static_cast<const std::byte*>(first), rows, bytes, stride};
  }
  // Asks for the next rows, if there are any.
  void take(int64_t rows) {
    for (; rows > 0 && next_ < count_; --rows) {
      Block& block = blocks_[next_];
      for (int64_t at = 0; at < block.bytes; at += kLine) __builtin_prefetch(block.row + at, 0, 2);
      block.row += block.stride;
      if (--block.rows == 0) ++next_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;  // bytes
  struct Block {
    const std::byte* row = nullptr;
    int64_t rows = 0, bytes = 0, stride = 0;
  };
  std::array<Block, kMostBlocks> blocks_;
  size_t count_ = 0, next_ = 0;
};

}  // namespace trireme::cpu
