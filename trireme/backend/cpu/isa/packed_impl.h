// Products with a packed right operand (cpu/products/packed_product.h), whole: their tiles are small, so that what
// stands between two of them counts.
#pragma once

#include "trireme/backend/cpu/isa/product_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::PackedProduct;

[[gnu::always_inline]] static inline int64_t within(int64_t x, int64_t least, int64_t most) {
  return x < least ? least : x > most ? most : x;
}

// The terms of a row of a lie side by side, or with `rows_beside` the rows of a term. With `near` the term of b that
// lies `near` floats ahead is brought to the first-level cache with each.
template <int rows, bool rows_beside, bool near>
[[gnu::always_inline]] static inline void add_packed_terms(TileSums<rows>& at, const PackedProduct& p, const float* a,
                                                           const float* b, int64_t terms, int64_t near_floats) {
  const int64_t a_row = rows_beside ? 1 : p.a_row;
  const int64_t a_k = rows_beside ? p.a_k : 1;
  for_each_term(
      terms, p.ahead, [&]() __attribute__((always_inline)) {
        if (near) prefetch_term(b + near_floats);
        add_term<rows>(at, a, a_row, b);
        a += a_k;
        b += kTileColumns;
      });
}

template <int rows, bool rows_beside>
[[gnu::always_inline]] static inline void packed_tile(const PackedProduct& p, int64_t i, int64_t j) {
  const int64_t begin = within(p.begin + i, 0, p.k);
  const int64_t terms = within(p.end + i + rows - 1, begin, p.k) - begin;
  const int64_t columns = p.n - j < kTileColumns ? p.n - j : kTileColumns;
  const float* a = p.a + (rows_beside ? i + begin * p.a_k : i * p.a_row + begin);
  const float* b = p.b + j * p.panel_terms + begin * kTileColumns;
  float* c = p.c + i * p.c_row + j;
  TileSums<rows> at;
#pragma GCC unroll 16
  for (int row = 0; row < rows; ++row) {
    at[row][0] = at[row][1] = F32{};
    // Of the tile below, which is usually the next one.
    __builtin_prefetch(c + (rows + row) * p.c_row, 1);
    if (kTileColumns > 16) __builtin_prefetch(c + (rows + row) * p.c_row + 16, 1);
  }
  if (p.add) load_sums<rows>(at, c, p.c_row, columns);
  // The second tile asks for the panel that comes next, since the first one may still wait for its own.
  const bool next_panel = !p.by_rows && i == kTileRows;
  if (next_panel || !kFewInstructions) {
    add_packed_terms<rows, rows_beside, true>(at, p, a, b, terms,
                                              next_panel ? p.panel_terms * kTileColumns : kFloatsAhead);
  } else {
    add_packed_terms<rows, rows_beside, false>(at, p, a, b, terms, 0);
  }
  store_sums<rows>(at, c, p.c_row, columns);
}

// The last rows.
template <bool rows_beside, int rows = kTileRows - 1>
void packed_tile_of(const PackedProduct& p, int64_t i, int64_t j) {
  if constexpr (rows > 1) {
    if (p.m - i < rows) return packed_tile_of<rows_beside, rows - 1>(p, i, j);
  }
  packed_tile<rows, rows_beside>(p, i, j);
}

template <bool rows_beside>
void multiply_packed_tiles(const PackedProduct& p) {
  const int64_t inner = p.by_rows ? p.n : p.m, outer = p.by_rows ? p.m : p.n;
  const int64_t inner_step = p.by_rows ? kTileColumns : kTileRows, outer_step = p.by_rows ? kTileRows : kTileColumns;
  for (int64_t x = 0; x < outer; x += outer_step) {
    for (int64_t y = 0; y < inner; y += inner_step) {
      const int64_t i = p.by_rows ? x : y, j = p.by_rows ? y : x;
      const int64_t rows = p.m - i < kTileRows ? p.m - i : kTileRows;
      if (j >= p.wanted + i + rows - 1) continue;
      if (rows == kTileRows) {
        packed_tile<kTileRows, rows_beside>(p, i, j);
      } else {
        packed_tile_of<rows_beside>(p, i, j);
      }
    }
  }
}

inline void multiply_packed(const PackedProduct& p) {
  p.a_row == 1 ? multiply_packed_tiles<true>(p) : multiply_packed_tiles<false>(p);
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
