// What the tiles of a product bring nearer (LinesAhead in isa/products.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/backend/cpu/isa/products.h"
#include "trireme/base/error.h"

namespace trireme::cpu {

inline constexpr int64_t kLineBytes = 64;

// As many lines with each tile as are done with half of so many tiles.
inline void spread_over_tiles(LinesAhead& ahead, int64_t lines, int64_t tiles) {
  ahead.of_tile = tiles == 0 ? 0 : (2 * lines + tiles - 1) / tiles;
}

// Instead of what was left of this block.
inline void set_lines(LinesAhead& ahead, int block, const void* first, int64_t rows, int64_t step, int64_t columns) {
  ahead.blocks[block] = {static_cast<const std::byte*>(first), rows, step, rows > 0 ? columns : 0};
  ahead.next = std::min(ahead.next, block);
}

// After those that are left, in a block that has none; kBlocks times at most.
inline void add_lines(LinesAhead& ahead, const void* first, int64_t rows, int64_t step, int64_t columns) {
  int block = LinesAhead::kBlocks;
  while (block > 0 && ahead.blocks[block - 1].columns == 0) --block;
  invariant(block < LinesAhead::kBlocks, "lines ahead in more than {} blocks", LinesAhead::kBlocks);
  ahead.blocks[block] = {static_cast<const std::byte*>(first), rows, step, rows > 0 ? columns : 0};
}

}  // namespace trireme::cpu
