// Heads of attention as operands of tiles, and results from their sums (cpu/isa/tile_heads.h).
#pragma once

#include "trireme/backend/cpu/isa/tile_heads.h"
#include "trireme/backend/cpu/isa/tile_table_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::kStepWords;
using cpu::TileHead;
using cpu::TileResult;

static_assert(kLanes == 16);
static constexpr int64_t kBlock = kTileLines;        // queries, or keys, of a block
static constexpr int64_t kScores = kBlock * kBlock;  // of a block
static constexpr int64_t kHalves = kBlock / kLanes;  // vectors of a row of scores

typedef uint16_t U16Pair __attribute__((vector_size(64)));

// Two vectors rounded, one after the other: what is below the normal numbers becomes zero, as products take it.
[[gnu::always_inline]] static inline U16Pair rounded_beside(F32 first, F32 second) {
#if defined(__AVX512BF16__)
  return (U16Pair)_mm512_cvtne2ps_pbh(second, first);
#else
  return __builtin_shufflevector(convert_to_bf16(first), convert_to_bf16(second), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
                                 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
#endif
}
// Pairs of an element of each: of the first 16 of both, or of the others.
[[gnu::always_inline]] static inline U16Pair first_pairs(U16Pair a, U16Pair b) {
  return __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11,
                                 43, 12, 44, 13, 45, 14, 46, 15, 47);
}
[[gnu::always_inline]] static inline U16Pair second_pairs(U16Pair a, U16Pair b) {
  return __builtin_shufflevector(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57,
                                 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
}
[[gnu::always_inline]] static inline void put(uint32_t* to, U16Pair x) {
  __builtin_memcpy(to, &x, sizeof x);
}

[[gnu::always_inline]] static inline U16Pair rounded_pairs(F32 first, F32 second) {
  const U16Pair both = rounded_beside(first, second);
  return __builtin_shufflevector(both, both, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10,
                                 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// The first n of 32 elements; the rest reads as zero and is not written.
[[gnu::always_inline]] static inline U16Pair elements_at(const Bf16* p, int64_t n) {
  U16Pair x{};
  if (n >= kBlock) {
    __builtin_memcpy(&x, p, sizeof x);
  } else {
    __builtin_memcpy(&x, p, static_cast<size_t>(n) * sizeof(Bf16));
  }
  return x;
}
[[gnu::always_inline]] static inline void put_elements_at(Bf16* p, U16Pair x, int64_t n) {
  if (n >= kBlock) {
    __builtin_memcpy(p, &x, sizeof x);
  } else {
    __builtin_memcpy(p, &x, static_cast<size_t>(n) * sizeof(Bf16));
  }
}

// Words of 16 rows and columns.
[[gnu::always_inline]] static inline void transpose_words(U16Pair (&rows)[16]) {
  F32 words[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) words[i] = reinterpret_cast<F32>(rows[i]);
  transpose<1>(words);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = reinterpret_cast<U16Pair>(words[i]);
}
[[gnu::always_inline]] static inline void put_tile(const U16Pair (&rows)[16], uint32_t* to) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) put(to + i * kLanes, rows[i]);
}

// Where a step of 32 tokens and 32 elements goes.
struct HeadStep {
  uint32_t *rows, *columns, *terms_rows, *terms_columns;
};

[[gnu::always_inline]] static inline void pack_step(int64_t tokens, int64_t size, const Bf16* from, int64_t stride,
                                                    const HeadStep& to) {
  alignas(64) U16Pair line[kBlock];
  const bool whole = tokens >= kBlock && size >= kBlock;
  for (int64_t i = 0; i < kBlock; ++i)
    line[i] = whole        ? elements_at(from + i * stride, kBlock)
              : i < tokens ? elements_at(from + i * stride, size)
                           : U16Pair{};
  for (int64_t half = 0; half < 2; ++half) {
    U16Pair rows[16];
    const auto take = [&](auto row) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) rows[i] = row(i);
    };
    const int64_t at = half * cpu::kTileWords;
    if (to.rows != nullptr || to.columns != nullptr) {
      take([&](int i) __attribute__((always_inline)) { return line[half * 16 + i]; });
      if (to.rows != nullptr) put_tile(rows, to.rows + at);
      if (to.columns != nullptr) {
        transpose_words(rows);
        put_tile(rows, to.columns + at);
      }
    }
    if (to.terms_rows != nullptr || to.terms_columns != nullptr) {
      take([&](int i) __attribute__((always_inline)) {
        return half == 0 ? first_pairs(line[2 * i], line[2 * i + 1]) : second_pairs(line[2 * i], line[2 * i + 1]);
      });
      if (to.terms_columns != nullptr) put_tile(rows, to.terms_columns + at);
      if (to.terms_rows != nullptr) {
        transpose_words(rows);
        put_tile(rows, to.terms_rows + at);
      }
    }
  }
}

static void pack_head(const TileHead& head) {
  const int64_t blocks = (head.tokens + kBlock - 1) / kBlock, steps = (head.size + kBlock - 1) / kBlock;
  const auto of = [](uint32_t* all, int64_t step) { return all == nullptr ? nullptr : all + step * kStepWords; };
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t token = block * kBlock, element = step * kBlock;
      const int64_t by_tokens = block * steps + step, by_elements = step * blocks + block;
      pack_step(head.tokens - token, head.size - element, head.from + token * head.stride + element, head.stride,
                {of(head.rows, by_tokens), of(head.columns, by_tokens), of(head.terms_rows, by_elements),
                 of(head.terms_columns, by_elements)});
    }
  }
}

// fn(sums of a block, its first token, how many there are of it, its first element, how many).
template <class Fn>
[[gnu::always_inline]] static inline void for_each_block(const TileResult& t, Fn&& fn) {
  const float* sums = t.sums;
  for (int64_t token = 0; token < t.tokens; token += kBlock) {
    for (int64_t element = 0; element < t.size; element += kBlock, sums += kScores)
      fn(sums, token, t.tokens - token < kBlock ? t.tokens - token : kBlock, element, t.size - element);
  }
}

static void put_tokens(const TileResult& t) {
  for_each_block(t, [&](const float* sums, int64_t token, int64_t tokens, int64_t element, int64_t n) {
    for (int64_t i = 0; i < tokens; ++i) {
      const F32 first = load(sums + i * kBlock) * t.factor, second = load(sums + i * kBlock + kLanes) * t.factor;
      put_elements_at(t.to + (token + i) * t.stride + element, rounded_beside(first, second), n);
    }
  });
}

static void put_elements(const TileResult& t) {
  for_each_block(t, [&](const float* sums, int64_t token, int64_t tokens, int64_t element, int64_t n) {
    for (int64_t half = 0; half < kHalves; ++half) {
      const int64_t first = half * kLanes, left = tokens - first < kLanes ? tokens - first : kLanes;
      if (left <= 0) return;
      const F32 factor = t.factors == nullptr ? set(t.factor)
                         : left == kLanes     ? load(t.factors + token + first)
                                              : load_n(t.factors + token + first, left);
      U16Pair rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const float* const at = sums + 2 * i * kBlock + first;
        rows[i] = rounded_pairs(load(at) * factor, load(at + kBlock) * factor);
      }
      transpose_words(rows);
      Bf16* const to = t.to + (token + first) * t.stride + element;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        if (i < left) put_elements_at(to + i * t.stride, rows[i], n);
      }
    }
  });
}

constexpr cpu::TileHeadLoops tile_head_loops() {
  return {pack_head, put_tokens, put_elements};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
