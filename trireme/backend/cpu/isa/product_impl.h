// One tile of a matrix product whose sums are taken in leaves and added in a tree; see
// cpu/leaves.h.
#pragma once

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::LeafTile;

// The sums of a tile stay in registers: rows x 2 vectors, two vectors of b and one number of a.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 14;
#else
inline constexpr int kTileRows = 6;
#endif
inline constexpr int kTileColumns = 2 * kLanes;

template <int rows>
struct TileSums {
  F32 at[rows][2];

  [[gnu::always_inline]] void clear() {
    for (int i = 0; i < rows; ++i) at[i][0] = at[i][1] = F32{};
  }
  [[gnu::always_inline]] void add(const TileSums& other) {
    for (int i = 0; i < rows; ++i) {
      at[i][0] = other.at[i][0] + at[i][0];
      at[i][1] = other.at[i][1] + at[i][1];
    }
  }
  // The first n columns of the rows of c; n at most kTileColumns.
  [[gnu::always_inline]] void load_from(const float* c, int64_t c_row, int64_t n) {
    for (int i = 0; i < rows; ++i) {
      const float* row = c + i * c_row;
      at[i][0] = n >= kLanes ? load(row) : load_n(row, n);
      at[i][1] = n == kTileColumns ? load(row + kLanes)
                 : n > kLanes      ? load_n(row + kLanes, n - kLanes)
                                   : F32{};
    }
  }
  [[gnu::always_inline]] void store_to(float* c, int64_t c_row, int64_t n) const {
    for (int i = 0; i < rows; ++i) {
      float* row = c + i * c_row;
      if (n == kTileColumns) {
        store(row, at[i][0]);
        store(row + kLanes, at[i][1]);
      } else if (n >= kLanes) {
        store(row, at[i][0]);
        if (n > kLanes) store_n(row + kLanes, at[i][1], n - kLanes);
      } else {
        store_n(row, at[i][0], n);
      }
    }
  }
};

template <int rows>
void leaf_tile(const LeafTile& t) {
  TileSums<rows> kept[cpu::kMaxLeafLevels];  // sums of 1, 2, 4, ... leaves that wait for their like
  int depth = 0;
  const float* b = t.b;
  TileSums<rows> sums;
  if (t.add) {
    sums.load_from(t.c, t.c_row, t.columns);
  } else {
    sums.clear();
  }
  for (int64_t s = 0, leaf = 0; s < t.count; ++s) {
    const cpu::LeafRun& run = t.runs[s];
    const float* a = t.a + run.start * t.a_k;
    for (int64_t k = 0; k < run.length; ++k, a += t.a_k, b += kTileColumns) {
      const F32 b0 = load(b);
      const F32 b1 = load(b + kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) {
        const F32 x = set(a[i * t.a_row]);
        sums.at[i][0] = fma(x, b0, sums.at[i][0]);
        sums.at[i][1] = fma(x, b1, sums.at[i][1]);
      }
    }
    if (!run.ends_leaf || s + 1 == t.count) continue;
    for (int64_t done = leaf++; (done & 1) != 0; done >>= 1) sums.add(kept[--depth]);
    kept[depth++] = sums;
    sums.clear();
  }
  while (depth > 0) sums.add(kept[--depth]);
  sums.store_to(t.c, t.c_row, t.columns);
}

template <int rows = kTileRows>
void leaf_tile_of(const LeafTile& t) {
  if constexpr (rows > 1) {
    if (t.rows < rows) return leaf_tile_of<rows - 1>(t);
  }
  leaf_tile<rows>(t);
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
