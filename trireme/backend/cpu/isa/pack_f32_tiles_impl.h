// Packing of f32 operands for products in tiles (cpu/isa/tiles.h), as three parts of bf16 each.
#pragma once

#include "trireme/backend/cpu/isa/pack_impl.h"
#include "trireme/backend/cpu/isa/tiles.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::kPartsOfF32;
using cpu::kTileTerms;
using cpu::kTileWords;
using cpu::TileSource;

static constexpr int64_t kWordsOfPart = 2 * kTileWords;

// A vector of f32 as the sum of three, whose lower halves are zero: bf16. The first one is rounded, or cut where it
// would be infinite; the second is cut, so that the sum of both is never beyond x; then infinity is left for the third.
struct PartsOfF32 {
  F32 of[kPartsOfF32];
};
[[gnu::always_inline]] static inline PartsOfF32 split_f32(F32 x) {
  constexpr auto kUpperHalf = static_cast<int32_t>(0xffff0000);
  const F32 most = set(0x1.fep127F);
  const auto limited = [&](F32 y) __attribute__((always_inline)) {
    return max(-most, min(most, y));
  };
  PartsOfF32 parts;
  parts.of[0] = as_f((as_i(limited(x)) + 0x8000) & kUpperHalf);
  x = x - parts.of[0];
  parts.of[1] = as_f(as_i(limited(x)) & kUpperHalf);
  parts.of[2] = x - parts.of[1];
  return parts;
}

// A row of 16 pairs of each part of a tile.
[[gnu::always_inline]] static inline void put_pairs_of(F32 low, F32 high, uint32_t* to) {
  const PartsOfF32 first = split_f32(low), second = split_f32(high);
#pragma GCC unroll 3
  for (int part = 0; part < kPartsOfF32; ++part) {
    const U32 pairs =
        reinterpret_cast<U32>(first.of[part]) >> 16 | (reinterpret_cast<U32>(second.of[part]) & 0xffff0000U);
    __builtin_memcpy(to + part * kWordsOfPart, &pairs, sizeof pairs);
  }
}

// The upper halves of both, side by side.
typedef uint16_t Halves __attribute__((vector_size(kLanes * 4)));
[[gnu::always_inline]] static inline void put_upper_halves(F32 first, F32 second, uint32_t* to) {
  const Halves halves = __builtin_shufflevector(reinterpret_cast<Halves>(first), reinterpret_cast<Halves>(second), 1, 3,
                                                5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41,
                                                43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
  __builtin_memcpy(to, &halves, sizeof halves);
}

// Terms of a line in their order, 32 of them, or with zeros in place of those from n on.
[[gnu::always_inline]] static inline void put_line(const float* line, int64_t n, uint32_t* to) {
  const F32 low = n >= kLanes ? load(line) : load_n(line, n);
  const F32 high = n >= 2 * kLanes ? load(line + kLanes) : n > kLanes ? load_n(line + kLanes, n - kLanes) : F32{};
  const PartsOfF32 first = split_f32(low), second = split_f32(high);
#pragma GCC unroll 3
  for (int part = 0; part < kPartsOfF32; ++part)
    put_upper_halves(first.of[part], second.of[part], to + part * kWordsOfPart);
}

// Two terms of 16 lines, or of the first n.
[[gnu::always_inline]] static inline void put_two_terms(const float* low, const float* high, int64_t n, uint32_t* to) {
  const auto get = [&](const float* p) __attribute__((always_inline)) {
    return p == nullptr ? F32{} : n >= kLanes ? load(p) : load_n(p, n);
  };
  put_pairs_of(get(low), get(high), to);
}

// Exchanges the rows and the columns of a tile.
static void transpose_tile(uint32_t* tile) {
  F32 rows[16];
  auto* const at = reinterpret_cast<float*>(tile);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = load(at + i * 16);
  transpose<1>(rows);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) store(at + i * 16, rows[i]);
}

// A tile of each part: n lines and m terms from `from` on.
[[gnu::always_inline]] static inline void pack_tile(const TileSource& how, int64_t n, int64_t m, const float* from,
                                                    uint32_t* to) {
  const int64_t rows = how.lines_beside ? (m + 1) / 2 : n;
  const bool whole = n == 16 && m == kTileTerms;
  for (int64_t row = 0; whole && row < 16; ++row) {
    if (how.lines_beside) {
      const float* const low = from + 2 * row * how.stride;
      put_two_terms(low, low + how.stride, 16, to + row * 16);
    } else {
      put_line(from + row * how.stride, kTileTerms, to + row * 16);
    }
  }
  for (int64_t row = 0; !whole && row < rows; ++row) {
    if (how.lines_beside) {
      const float* const low = from + 2 * row * how.stride;
      put_two_terms(low, 2 * row + 1 < m ? low + how.stride : nullptr, n, to + row * 16);
    } else {
      put_line(from + row * how.stride, m, to + row * 16);
    }
  }
  for (int part = 0; part < kPartsOfF32; ++part) {
    uint32_t* const tile = to + part * kWordsOfPart;
    if (rows < 16) __builtin_memset(tile + rows * 16, 0, static_cast<size_t>(16 - rows) * 64);
    if (how.as_rows == how.lines_beside) transpose_tile(tile);
  }
}

static void pack_f32_tiles(const TileSource& how, int64_t lines, int64_t terms, const float* from, uint32_t* to) {
  for (int64_t term = 0; term < terms; term += kTileTerms, to += kPartsOfF32 * kWordsOfPart) {
    const int64_t m = terms - term < kTileTerms ? terms - term : kTileTerms;
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t line = half * 16;
      const int64_t n = lines - line < 0 ? 0 : lines - line < 16 ? lines - line : 16;
      const float* const at =
          n == 0 ? from : from + (how.lines_beside ? term * how.stride + line : line * how.stride + term);
      pack_tile(how, n, n == 0 ? 0 : m, at, to + half * kTileWords);
    }
  }
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
