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

struct Terms {
  const float* a;
  int64_t a_row, a_k;
  const float* b;
  int64_t length;
};

// *to = *begin + the terms, then each of the `merges` sums that end at kept, the last one first.
// Without `begin` from 0. The sums stay in registers: every loop over them is unrolled.
template <int rows>
[[gnu::always_inline]] static inline void add_terms(const Terms& terms, const TileSums<rows>* begin,
                                                    const TileSums<rows>* kept, int merges,
                                                    TileSums<rows>* to) {
  F32 at[rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) at[i][0] = at[i][1] = F32{};
  if (begin != nullptr) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      at[i][0] = begin->at[i][0];
      at[i][1] = begin->at[i][1];
    }
  }
  const float* a = terms.a;
  const float* b = terms.b;
  for (int64_t k = 0; k < terms.length; ++k, a += terms.a_k, b += kTileColumns) {
    const F32 b0 = load(b);
    const F32 b1 = load(b + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const F32 x = set(a[i * terms.a_row]);
      at[i][0] = fma(x, b0, at[i][0]);
      at[i][1] = fma(x, b1, at[i][1]);
    }
  }
  for (; merges > 0; --merges) {
    --kept;
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      at[i][0] = kept->at[i][0] + at[i][0];
      at[i][1] = kept->at[i][1] + at[i][1];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    to->at[i][0] = at[i][0];
    to->at[i][1] = at[i][1];
  }
}

// With `packed` a_row is 1 and a_k kTileRows, so that one pointer reaches the numbers of all rows.
template <int rows, bool packed>
void leaf_tile(const LeafTile& t) {
  Terms terms{t.a, packed ? 1 : t.a_row, packed ? kTileRows : t.a_k, t.b, 0};
  TileSums<rows> kept[cpu::kMaxLeafLevels];  // sums of 1, 2, 4, ... leaves that wait for their like
  int depth = 0;
  TileSums<rows> sums;
  if (t.add) sums.load_from(t.c, t.c_row, t.columns);
  bool begun = t.add;
  for (int64_t s = 0, leaf = 0; s < t.count; ++s) {
    const cpu::LeafRun& run = t.runs[s];
    terms.a = t.a + run.start * terms.a_k;
    terms.length = run.length;
    const bool last = s + 1 == t.count;
    int merges = 0;
    if (last) {
      merges = depth;
    } else if (run.ends_leaf) {
      for (int64_t done = leaf++; (done & 1) != 0; done >>= 1) ++merges;
    }
    TileSums<rows>* to = &sums;
    if (!last && run.ends_leaf) to = kept + depth - merges;
    add_terms<rows>(terms, begun ? &sums : nullptr, kept + depth, merges, to);
    if (to != &sums) depth += 1 - merges;
    begun = !run.ends_leaf;
    terms.b += run.length * kTileColumns;
  }
  sums.store_to(t.c, t.c_row, t.columns);
}

template <int rows = kTileRows>
void leaf_tile_of(const LeafTile& t) {
  if constexpr (rows > 1) {
    if (t.rows < rows) return leaf_tile_of<rows - 1>(t);
  }
  if (t.a_row == 1 && t.a_k == kTileRows) {
    leaf_tile<rows, true>(t);
  } else {
    leaf_tile<rows, false>(t);
  }
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
