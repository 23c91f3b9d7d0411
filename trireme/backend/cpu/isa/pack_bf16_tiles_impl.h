// Packing of bf16 operands for products in tiles (cpu/isa/tiles.h): squares of kTileLines lines and kTileTerms terms,
// which are moved by whole cache lines of their source.
#pragma once

#include "trireme/backend/cpu/isa/pack_impl.h"
#include "trireme/backend/cpu/isa/pairs_impl.h"
#include "trireme/backend/cpu/isa/tiles.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

typedef uint16_t WordVector __attribute__((vector_size(64)));
typedef uint64_t QuadVector __attribute__((vector_size(64)));

using WordLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                        26, 27, 28, 29, 30, 31>;
using PairLanes = LanesOf<16>::Type;
using QuadLanes = LanesOf<8>::Type;

// Elements of a and b in turns: of each 16 bytes the first half (0) or the second (1).
template <int half, class V, int... lane>
[[gnu::always_inline]] static inline V in_turns(V a, V b, Lanes<lane...>) {
  constexpr int kCount = sizeof...(lane), kIn16Bytes = kCount / 4;
  return __builtin_shufflevector(
      a, b, (lane / kIn16Bytes * kIn16Bytes + half * kIn16Bytes / 2 + lane % kIn16Bytes / 2 + lane % 2 * kCount)...);
}
template <int half>
[[gnu::always_inline]] static inline U32 words_in_turns(U32 a, U32 b) {
  return reinterpret_cast<U32>(
      in_turns<half>(reinterpret_cast<WordVector>(a), reinterpret_cast<WordVector>(b), WordLanes{}));
}
template <int half>
[[gnu::always_inline]] static inline U32 pairs_in_turns(U32 a, U32 b) {
  return in_turns<half>(a, b, PairLanes{});
}
template <int half>
[[gnu::always_inline]] static inline U32 quads_in_turns(U32 a, U32 b) {
  return reinterpret_cast<U32>(
      in_turns<half>(reinterpret_cast<QuadVector>(a), reinterpret_cast<QuadVector>(b), QuadLanes{}));
}

[[gnu::always_inline]] static inline U32 load_words(const Bf16* from) {
  U32 words;
  __builtin_memcpy(&words, from, sizeof words);
  return words;
}
[[gnu::always_inline]] static inline void put_words(uint32_t* to, U32 words) {
  __builtin_memcpy(to, &words, sizeof words);
}

// 16 bytes of each of four rows.
[[gnu::always_inline]] static inline U32 pieces_of(const Bf16* from, int64_t step) {
#if defined(__AVX512F__)
  const auto piece = [&](int row) __attribute__((always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * step));
  };
  __m512i pieces = _mm512_castsi128_si512(piece(0));
  pieces = _mm512_inserti32x4(pieces, piece(1), 1);
  pieces = _mm512_inserti32x4(pieces, piece(2), 2);
  return reinterpret_cast<U32>(_mm512_inserti32x4(pieces, piece(3), 3));
#else
  U32 pieces;
  for (int row = 0; row < 4; ++row)
    __builtin_memcpy(reinterpret_cast<char*>(&pieces) + row * 16, from + row * step, 16);
  return pieces;
#endif
}

// Lines with their terms side by side, as rows.
static void copy_lines(const Bf16* from, int64_t stride, uint32_t* to) {
  for (int64_t line = 0; line < cpu::kTileLines; ++line) put_words(to + line * 16, load_words(from + line * stride));
}

// Lines of a term side by side, as columns of pairs.
static void pair_terms(const Bf16* from, int64_t stride, uint32_t* to) {
  const auto spread = [&](int64_t term) __attribute__((always_inline)) {
    const auto words = reinterpret_cast<QuadVector>(load_words(from + term * stride));
    return reinterpret_cast<U32>(__builtin_shufflevector(words, words, 0, 4, 1, 5, 2, 6, 3, 7));
  };
  for (int64_t pair = 0; pair < 16; ++pair) {
    const U32 low = spread(2 * pair), high = spread(2 * pair + 1);
    put_words(to + pair * 16, words_in_turns<0>(low, high));
    put_words(to + cpu::kTileWords + pair * 16, words_in_turns<1>(low, high));
  }
}

// Lines of a term side by side, as rows: of eight lines, those of four terms with eight others between them at once.
static void turn_terms(const Bf16* from, int64_t stride, uint32_t* to) {
  for (int64_t line = 0; line < cpu::kTileLines; line += 8, to += 8 * 16) {
    U32 term[8], two[8], four[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) term[i] = pieces_of(from + i * stride + line, 8 * stride);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // two terms of four lines
      two[i] = words_in_turns<0>(term[2 * i], term[2 * i + 1]);
      two[4 + i] = words_in_turns<1>(term[2 * i], term[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // four terms of two lines
      four[i * 2] = pairs_in_turns<0>(two[2 * i], two[2 * i + 1]);
      four[i * 2 + 1] = pairs_in_turns<1>(two[2 * i], two[2 * i + 1]);
    }
    // Of four[]: lines 0 and 1, 2 and 3 with terms 0 to 3, the same with terms 4 to 7, then lines 4 to 7.
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int first = i / 2 * 4 + i % 2;
      put_words(to + 2 * i * 16, quads_in_turns<0>(four[first], four[first + 2]));
      put_words(to + (2 * i + 1) * 16, quads_in_turns<1>(four[first], four[first + 2]));
    }
  }
}

// Lines with their terms side by side, as columns of pairs.
static void turn_lines(const Bf16* from, int64_t stride, uint32_t* to) {
  for (int64_t half = 0; half < 2; ++half, from += 16 * stride, to += cpu::kTileWords) {
    for (int64_t pair = 0; pair < 16; pair += 4) {
      U32 line[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) line[i] = pieces_of(from + i * stride + 2 * pair, 4 * stride);
      const U32 low[2] = {pairs_in_turns<0>(line[0], line[1]), pairs_in_turns<0>(line[2], line[3])};
      const U32 high[2] = {pairs_in_turns<1>(line[0], line[1]), pairs_in_turns<1>(line[2], line[3])};
      put_words(to + pair * 16, quads_in_turns<0>(low[0], low[1]));
      put_words(to + (pair + 1) * 16, quads_in_turns<1>(low[0], low[1]));
      put_words(to + (pair + 2) * 16, quads_in_turns<0>(high[0], high[1]));
      put_words(to + (pair + 3) * 16, quads_in_turns<1>(high[0], high[1]));
    }
  }
}

static void pack_square(const cpu::TileSource& how, const Bf16* from, int64_t stride, uint32_t* to) {
  if (how.as_rows) {
    how.lines_beside ? turn_terms(from, stride, to) : copy_lines(from, stride, to);
  } else {
    how.lines_beside ? pair_terms(from, stride, to) : turn_lines(from, stride, to);
  }
}

// So many rows of a square, with zeros for the rest of it.
static void fill_square(const Bf16* from, int64_t stride, int64_t rows, int64_t columns, Bf16* to) {
  for (int64_t row = 0; row < cpu::kTileLines; ++row, from += stride, to += cpu::kTileTerms) {
    const bool there = row < rows;
    const U16 first = there ? bits_of(from, columns) : U16{};
    const U16 second = there && columns > kLanes ? bits_of(from + kLanes, columns - kLanes) : U16{};
    __builtin_memcpy(to, &first, sizeof first);
    __builtin_memcpy(to + kLanes, &second, sizeof second);
  }
}

static void pack_bf16_tiles(const cpu::TileSource& how, int64_t lines, int64_t terms, const Bf16* from, uint32_t* to) {
  // Rows that are so far apart fall into one or two sets of the first-level cache, which then does not hold them until
  // all of their pieces are read.
  constexpr int64_t kFarApart = 2048 / sizeof(Bf16);
  const bool copied = how.as_rows && how.lines_beside && how.stride % kFarApart == 0;
  for (int64_t term = 0; term < terms; term += cpu::kTileTerms, to += 2 * cpu::kTileWords) {
    const int64_t m = terms - term < cpu::kTileTerms ? terms - term : cpu::kTileTerms;
    const Bf16* const at = from + (how.lines_beside ? term * how.stride : term);
    if (lines == cpu::kTileLines && m == cpu::kTileTerms && !copied) {
      pack_square(how, at, how.stride, to);
      continue;
    }
    alignas(64) Bf16 square[cpu::kTileLines * cpu::kTileTerms];
    fill_square(at, how.stride, how.lines_beside ? m : lines, how.lines_beside ? lines : m, square);
    pack_square(how, square, cpu::kTileTerms, to);
  }
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
