// Products of packed operands in tiles (cpu/isa/tiles.h), of bf16 and of the three parts of f32.
#pragma once

#include "trireme/backend/cpu/isa/pairs_impl.h"
#include "trireme/backend/cpu/isa/product_impl.h"
#include "trireme/backend/cpu/isa/tile_registers_impl.h"
#include "trireme/backend/cpu/isa/tiles.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::kTileLines;
using cpu::TileRow;

static constexpr int64_t kBlockSide = kTileLines;
static constexpr int64_t kWordsOfTwoTiles = 2 * cpu::kTileWords;

// Sums of tiles alone have no denormals, which the instruction that rounds would take for zero.
[[gnu::always_inline]] static inline void put_sum(const TileRow&, bool, float* to, F32 x) {
  store(to, x);
}
[[gnu::always_inline]] static inline void put_sum(const TileRow&, bool adds, Bf16* to, F32 x) {
  if (adds) return store(to, x);
  const U16 bits = convert_to_bf16(x);
  __builtin_memcpy(to, &bits, sizeof bits);
}

// A block of sums that becomes a part of the result while the next one is computed.
struct WaitingBlock {
  const float* sums = nullptr;  // null: none
  int64_t column = 0;
  int64_t row = 0;  // the next one
};

// Some rows more.
template <class Out>
[[gnu::always_inline]] static inline void put_rows(const TileRow& t, Out* c, WaitingBlock& block, int64_t count) {
  const int64_t end = block.row + count < t.rows ? block.row + count : t.rows;
  const int64_t n = t.columns - block.column;
  const bool adds = t.sums != nullptr;
  for (; block.row < end; ++block.row) {
    const float* const from = block.sums + block.row * kBlockSide;
    const float* const before = t.sums + block.row * t.sums_row + block.column;
    Out* const to = c + block.row * t.c_row + block.column;
    if (n >= kBlockSide) {
#pragma GCC unroll 2
      for (int at = 0; at < kBlockSide; at += kLanes) {
        F32 x = load(from + at);
        if (adds) x = load(before + at) + x;
        put_sum(t, adds, to + at, x);
      }
      continue;
    }
    for (int64_t at = 0; at < n; at += kLanes) {
      const int64_t left = n - at < kLanes ? n - at : kLanes;
      F32 x = load(from + at);
      if (adds) x = (left == kLanes ? load(before + at) : load_n(before + at, left)) + x;
      if (left == kLanes) {
        put_sum(t, adds, to + at, x);
      } else {
        store_n(to + at, x, left);
      }
    }
  }
}

// Sums of two by two tiles are 0 to 3, those of a's lines 4 and 5, of b's 6 and 7.
[[gnu::always_inline]] static inline void load_a(const uint32_t* two) {
  load_tile<4>(two, 64);
  load_tile<5>(two + cpu::kTileWords, 64);
}
[[gnu::always_inline]] static inline void load_b(const uint32_t* two) {
  load_tile<6>(two, 64);
  load_tile<7>(two + cpu::kTileWords, 64);
}
[[gnu::always_inline]] static inline void add_products() {
  multiply_tiles<0, 4, 6>();
  multiply_tiles<1, 4, 7>();
  multiply_tiles<2, 5, 6>();
  multiply_tiles<3, 5, 7>();
}

// Of the nine products of parts those that matter, the smaller ones first where loads allow it: 0 x 2, 0 x 0, 0 x 1,
// 1 x 1, 1 x 0, 2 x 0. The others together are below 2^-22 of the whole product.
[[gnu::always_inline]] static inline void add_step_of_f32(const uint32_t* a, const uint32_t* b) {
  load_a(a);
  load_b(b + 2 * kWordsOfTwoTiles);
  add_products();
  load_b(b);
  add_products();
  load_b(b + kWordsOfTwoTiles);
  add_products();
  load_a(a + kWordsOfTwoTiles);
  add_products();
  load_b(b);
  add_products();
  load_a(a + 2 * kWordsOfTwoTiles);
  add_products();
}

// Loads stand between the products, which they would otherwise wait for together.
[[gnu::always_inline]] static inline void add_bf16_step(const uint32_t* a, const uint32_t* b) {
  load_tile<4>(a, 64);
  load_passing_tile<6>(b, 64);
  multiply_tiles<0, 4, 6>();
  load_passing_tile<7>(b + cpu::kTileWords, 64);
  multiply_tiles<1, 4, 7>();
  load_tile<5>(a + cpu::kTileWords, 64);
  multiply_tiles<2, 5, 6>();
  multiply_tiles<3, 5, 7>();
}

[[gnu::always_inline]] static inline void store_block(float* to, int64_t row) {
  store_tile<0>(to, 4 * row);
  store_tile<1>(to + 16, 4 * row);
  store_tile<2>(to + 16 * row, 4 * row);
  store_tile<3>(to + 16 * row + 16, 4 * row);
}

// Block after block; the sums of one become the result while the next is computed.
template <bool f32, class Out>
[[gnu::always_inline]] static inline void multiply_row_of_tiles(const TileRow& t, Out* c) {
  constexpr int64_t kWordsOfStep = (f32 ? cpu::kPartsOfF32 : 1) * kWordsOfTwoTiles;
  alignas(64) float sums[2][kBlockSide * kBlockSide];
  WaitingBlock waiting;
  const int64_t rows_of_step = (t.rows + t.steps - 1) / t.steps;
  const uint32_t* blocks = t.b;
  for (int64_t column = 0; column < t.columns; column += kBlockSide, blocks += t.b_block) {
    clear_tile<0>();
    clear_tile<1>();
    clear_tile<2>();
    clear_tile<3>();
    const AskedLines lines = take_lines(t.ahead, 2 * t.steps);
    const std::byte* line = lines.first;
    int64_t lines_left = lines.count;
    const uint32_t* a = t.a;
    const uint32_t* b = blocks;
    for (int64_t step = 0; step < t.steps; ++step, a += kWordsOfStep, b += kWordsOfStep) {
      if constexpr (f32) {
        add_step_of_f32(a, b);
      } else {
        add_bf16_step(a, b);
      }
      for (int i = 0; i < 2 && lines_left > 0; ++i, --lines_left, line += lines.step) __builtin_prefetch(line, 0, 2);
      if (waiting.sums != nullptr) put_rows(t, c, waiting, rows_of_step);
    }
    if constexpr (sizeof(Out) == sizeof(float)) {
      if (t.sums == nullptr && t.rows == kBlockSide && t.columns - column >= kBlockSide) {
        waiting.sums = nullptr;
        store_block(c + column, t.c_row);
        continue;
      }
    }
    float* const here = sums[column / kBlockSide % 2];
    store_block(here, kBlockSide);
    waiting = {here, column, 0};
  }
  if (waiting.sums != nullptr) put_rows(t, c, waiting, t.rows);
}

static void multiply_bf16_tiles(const TileRow& row) {
  if (row.c != nullptr) return multiply_row_of_tiles<false>(row, row.c);
  multiply_row_of_tiles<false>(row, row.rounded);
}
static void multiply_f32_tiles(const TileRow& row) {
  multiply_row_of_tiles<true>(row, row.c);
}

// For measuring, as peak_impl.h: 16 turns together have so many multiply-adds as four tiles, whose sums wait for
// nothing.
static float multiply_adds_in_tiles(int64_t turns) {
  begin_tiles();
  clear_tile<4>(), clear_tile<5>(), clear_tile<6>(), clear_tile<7>();
  clear_tile<0>(), clear_tile<1>(), clear_tile<2>(), clear_tile<3>();
  for (int64_t turn = 0; turn < turns; turn += 16) add_products();
  alignas(64) float sums[cpu::kTileWords];
  store_tile<0>(sums, 64);
  end_tiles();
  return sums[0];
}
constexpr int64_t kTileMultiplyAdds = 4 * 16 * 16 * cpu::kTileTerms / 16;

}  // namespace trireme::TRIREME_ISA_NAMESPACE
