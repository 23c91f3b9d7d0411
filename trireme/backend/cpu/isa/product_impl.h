// One tile of a matrix product whose sums are taken in leaves and added in a tree; see
// cpu/leaves.h.
#pragma once

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::LeafTile;

// The sums of a tile stay in registers: rows x 2 vectors, two vectors of b and one number of a.
inline constexpr int kTileRows = kLanes == 16 ? 14 : 6;
inline constexpr int kTileColumns = 2 * kLanes;

// Both vectors of each of the rows, in registers: every loop over them is unrolled.
template <int rows>
using TileSums = F32[rows][2];

// The first n columns of the rows of c; n at most kTileColumns.
template <int rows>
[[gnu::always_inline]] static inline void load_sums(TileSums<rows>& at, const float* c, int64_t c_row, int64_t n) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    const float* row = c + i * c_row;
    at[i][0] = n >= kLanes ? load(row) : load_n(row, n);
    at[i][1] = n == kTileColumns ? load(row + kLanes) : n > kLanes ? load_n(row + kLanes, n - kLanes) : F32{};
  }
}
template <int rows>
[[gnu::always_inline]] static inline void store_sums(const TileSums<rows>& at, float* c, int64_t c_row, int64_t n) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    float* row = c + i * c_row;
    if (n >= kLanes) {
      store(row, at[i][0]);
    } else {
      store_n(row, at[i][0], n);
    }
    if (n == kTileColumns) {
      store(row + kLanes, at[i][1]);
    } else if (n > kLanes) {
      store_n(row + kLanes, at[i][1], n - kLanes);
    }
  }
}
template <int rows>
[[gnu::always_inline]] static inline void add_sums(TileSums<rows>& at, const float* kept) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    at[i][0] = load(kept + i * kTileColumns) + at[i][0];
    at[i][1] = load(kept + i * kTileColumns + kLanes) + at[i][1];
  }
}

// Tiles of AVX2 have 12 multiply-adds a term, beside which little may stand: where another thread works on the same
// core, each of the two has half of the instructions that the core takes in a cycle, and these are what tiles then wait
// for. So nothing is asked for that is not far away, and some terms make one turn of the loop.
inline constexpr bool kFewInstructions = kLanes == 8;
inline constexpr int kTermsOfTurn = kFewInstructions ? 4 : 1;

// add() for each term.
template <class Add>
[[gnu::always_inline]] static inline void for_each_term(int64_t terms, Add&& add) {
  int64_t k = 0;
  for (; k + kTermsOfTurn <= terms; k += kTermsOfTurn) {
#pragma GCC unroll 4
    for (int i = 0; i < kTermsOfTurn; ++i) add();
  }
  for (; k < terms; ++k) add();
}

// A term of each sum; numbers of a lie `a_row` apart.
template <int rows>
[[gnu::always_inline]] static inline void add_term(TileSums<rows>& at, const float* a, int64_t a_row, const float* b) {
  const F32 b0 = load(b);
  const F32 b1 = load(b + kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    const F32 x = set(a[i * a_row]);
    add_product(at[i][0], x, b0);
    add_product(at[i][1], x, b1);
  }
}

struct Factors {
  const float* a;
  int64_t a_step;  // from term to term of a, or from row to row
  const float* b;
  const float* ahead;  // brought nearer: as much as is read of b; null: nothing
};

// With `by_rows` the terms of a row of a lie side by side, otherwise its rows of a term do, so that one pointer reaches
// them all.
template <int rows, bool by_rows>
[[gnu::always_inline]] static inline void add_terms(TileSums<rows>& at, const Factors& factors, int64_t length) {
  const int64_t a_row = by_rows ? factors.a_step : 1;
  const int64_t a_k = by_rows ? 1 : factors.a_step;
  const float* a = factors.a;
  const float* b = factors.b;
  const auto add = [&]() __attribute__((always_inline)) {
    add_term<rows>(at, a, a_row, b);
    a += a_k;
    b += kTileColumns;
  };
  if (factors.ahead == nullptr) return for_each_term(length, add);
  const float* ahead = factors.ahead;
  for_each_term(
      length, [&]() __attribute__((always_inline)) {
        __builtin_prefetch(ahead);
        if (kTileColumns > 16) __builtin_prefetch(ahead + 16);  // another line
        ahead += kTileColumns;
        add();
      });
}

template <int rows, bool by_rows>
void leaf_tile(const LeafTile& t) {
  constexpr int64_t kKept = rows * kTileColumns;
  constexpr int64_t kTermsAhead = 8;
  const bool packed = t.a_row == 1 && t.a_k == kTileRows;
  Factors factors{t.a, by_rows ? t.a_row : t.a_k, t.b,
                  t.ahead != nullptr || kFewInstructions ? t.ahead : t.b + kTermsAhead * kTileColumns};
  int depth = __builtin_popcountll(static_cast<unsigned long long>(t.leaves));
  int64_t leaf = t.leaves;
  TileSums<rows> at;
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    at[i][0] = at[i][1] = F32{};
    // Of the tile below, which is usually the next one.
    __builtin_prefetch(t.c + (rows + i) * t.c_row, 1);
    if (kTileColumns > 16) __builtin_prefetch(t.c + (rows + i) * t.c_row + 16, 1);
  }
  if (t.add) load_sums<rows>(at, t.c, t.c_row, t.columns);
  bool in_leaf = true;
  for (int64_t s = 0; s < t.count; ++s) {
    const cpu::LeafRun& run = t.runs[s];
    if (!packed) factors.a = t.a + run.start * t.a_k;
    add_terms<rows, by_rows>(at, factors, run.length);
    if (packed) factors.a += run.length * kTileRows;
    factors.b += run.length * kTileColumns;
    if (factors.ahead != nullptr) factors.ahead += run.length * kTileColumns;
    const bool last = t.last && s + 1 == t.count;
    in_leaf = last || !run.ends_leaf;
    if (!last && !run.ends_leaf) continue;
    int merges = depth;
    if (!last) {
      merges = 0;
      for (int64_t done = leaf++; (done & 1) != 0; done >>= 1) ++merges;
    }
    for (; merges > 0; --merges) add_sums<rows>(at, t.kept + --depth * kKept);
    if (last) break;
    store_sums<rows>(at, t.kept + depth++ * kKept, kTileColumns, kTileColumns);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) at[i][0] = at[i][1] = F32{};
  }
  if (in_leaf) store_sums<rows>(at, t.c, t.c_row, t.columns);
}

template <int rows = kTileRows>
void leaf_tile_of(const LeafTile& t) {
  if constexpr (rows > 1) {
    if (t.rows < rows) return leaf_tile_of<rows - 1>(t);
  }
  if (t.a_row == 1) {
    leaf_tile<rows, false>(t);
  } else {
    leaf_tile<rows, true>(t);
  }
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
