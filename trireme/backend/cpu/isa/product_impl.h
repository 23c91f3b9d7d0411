// One tile of a matrix product whose sums are taken in leaves and added in a tree; see
// cpu/leaves.h.
#pragma once

#include "trireme/backend/cpu/isa/products.h"
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

// Of panels of b that are read term by term.
inline constexpr int64_t kFloatsAhead = 8 * kTileColumns;

[[gnu::always_inline]] static inline void prefetch_term(const float* b) {
  __builtin_prefetch(b);
  if (kTileColumns > 16) __builtin_prefetch(b + 16);  // another line
}

struct AskedLines {
  const std::byte* first = nullptr;
  int64_t step = 0, count = 0;
};

// `most` at most.
[[gnu::always_inline]] static inline AskedLines take_lines(cpu::LinesAhead* ahead, int64_t most) {
  constexpr int64_t kLineBytes = 64;
  if (ahead == nullptr) return {};
  while (ahead->next < cpu::LinesAhead::kBlocks && ahead->blocks[ahead->next].columns == 0) ++ahead->next;
  if (ahead->next == cpu::LinesAhead::kBlocks) return {};
  auto& block = ahead->blocks[ahead->next];
  const int64_t wanted = most < ahead->of_tile ? most : ahead->of_tile;
  const int64_t left = block.rows - block.row;
  const AskedLines asked{block.first + block.row * block.step, block.step, wanted < left ? wanted : left};
  block.row += asked.count;
  if (block.row == block.rows) {
    block.row = 0;
    block.first += kLineBytes;
    --block.columns;
  }
  return asked;
}

// add() for each term, and a line with each turn.
template <class Add>
[[gnu::always_inline]] static inline void for_each_term(int64_t terms, cpu::LinesAhead* ahead, Add&& add) {
  const AskedLines lines = take_lines(ahead, terms / kTermsOfTurn);
  const std::byte* line = lines.first;
  for (int64_t i = 0; i < lines.count; ++i, line += lines.step) {
    __builtin_prefetch(line, 0, 2);
#pragma GCC unroll 4
    for (int term = 0; term < kTermsOfTurn; ++term) add();
  }
  for_each_term(terms - lines.count * kTermsOfTurn, add);
}

template <int rows>
void leaf_tile(const LeafTile& t) {
  constexpr int64_t kKept = kTileRows * kTileColumns;  // as far apart in tiles of fewer rows, which share some of them
  const float* a = t.a;
  const float* b = t.b;
  int depth = __builtin_popcountll(static_cast<unsigned long long>(t.leaves));
  int64_t leaf = t.leaves;
  const auto waiting = [&](int level) __attribute__((always_inline)) {
    return (level < t.lasting ? t.kept : t.passing) + level * kKept;
  };
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
    for_each_term(
        run.length, t.ahead, [&]() __attribute__((always_inline)) {
          if (!kFewInstructions) prefetch_term(b + kFloatsAhead);
          add_term<rows>(at, a, 1, b);
          a += kTileRows;
          b += kTileColumns;
        });
    const bool last = t.last && s + 1 == t.count;
    in_leaf = last || !run.ends_leaf;
    if (!last && !run.ends_leaf) continue;
    int merges = depth;
    if (!last) {
      merges = 0;
      for (int64_t done = leaf++; (done & 1) != 0; done >>= 1) ++merges;
    }
    for (; merges > 0; --merges) add_sums<rows>(at, waiting(--depth));
    if (last) break;
    store_sums<rows>(at, waiting(depth++), kTileColumns, kTileColumns);
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
  leaf_tile<rows>(t);
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
