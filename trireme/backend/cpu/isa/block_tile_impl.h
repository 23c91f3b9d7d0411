// One tile of a matrix product of packed operands (cpu/products/blocked_product.h). Unlike a tile of leaves, it adds
// its sums to the earlier ones only at its end, so it never waits for them; and it prefetches what is packed next.
#pragma once

#include "trireme/backend/cpu/isa/product_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::BlockTile;

template <int rows>
[[gnu::always_inline]] static inline void add_to_result(const TileSums<rows>& at, const BlockTile& t) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    float* const row = t.c + i * t.c_row;
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      float* const to = row + v * kLanes;
      const int64_t n = t.columns - v * kLanes;
      if (n >= kLanes) {
        store(to, t.add ? load(to) + at[i][v] : at[i][v]);
      } else if (n > 0) {
        store_n(to, t.add ? load_n(to, n) + at[i][v] : at[i][v], n);
      }
    }
  }
}

template <int rows>
void block_tile(const BlockTile& t) {
  TileSums<rows> at;
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) at[i][0] = at[i][1] = F32{};
  const float* a = t.a;
  const float* b = t.b;
  const auto add = [&]() __attribute__((always_inline)) {
    if (!kFewInstructions) prefetch_term(b + kFloatsAhead);
    add_term<rows>(at, a, 1, b);
    a += kTileRows;
    b += kTileColumns;
  };
  // A row of the result is asked for with each of the first terms: all at once they would wait for each other.
  int64_t term = 0;
  const float* c = t.c;
  for (; term < rows && term < t.terms; ++term, c += t.c_row) {
    __builtin_prefetch(c, 1);
    __builtin_prefetch(c + kLanes, 1);
    add();
  }
  for_each_term(t.terms - term, t.ahead, add);
  add_to_result<rows>(at, t);
}

template <int rows = kTileRows>
void block_tile_of(const BlockTile& t) {
  if constexpr (rows > 1) {
    if (t.rows < rows) return block_tile_of<rows - 1>(t);
  }
  block_tile<rows>(t);
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
