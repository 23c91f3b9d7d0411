// Attention by the tiles of AMX (cpu/isa/tile_attention.h).
#pragma once

#include "trireme/backend/cpu/isa/math_impl.h"
#include "trireme/backend/cpu/isa/tile_attention.h"
#include "trireme/backend/cpu/isa/tile_heads_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::kMostTileKeys;
using cpu::TileForward;
using cpu::TileKeys;

// x less the next whole number below, rounded down; and x 2^e for the whole number below e.
#if defined(__AVX512F__)
[[gnu::always_inline]] static inline F32 above_whole(F32 x) {
  return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
[[gnu::always_inline]] static inline F32 scale_by_whole(F32 x, F32 e) {
  return _mm512_scalef_ps(x, e);
}
#endif
// 2^x within 3e-6 of it, a hundredth of what rounding to bf16 may do; 0 and infinity where it ends. The polynomial of
// degree 4 has the least relative error on [0, 1] of those that are 1 at 0.
[[gnu::always_inline]] static inline F32 rough_exp2(F32 x) {
  const F32 r = above_whole(x);
  F32 y = set(0x1.b7f730p-7F);
  y = fma(y, r, set(0x1.abf868p-5F));
  y = fma(y, r, set(0x1.ee2450p-3F));
  y = fma(y, r, set(0x1.62d6c6p-1F));
  y = fma(y, r, set(1.0F));
  return scale_by_whole(y, x);
}

// sums[32][32] = a b, or added to it, over so many steps.
template <bool add>
[[gnu::always_inline]] static inline void multiply_packed_tiles(int64_t steps, const uint32_t* a, const uint32_t* b,
                                                                float* sums) {
  constexpr int64_t kRow = 4 * kBlock;
  float* const lower = sums + 16 * kBlock;
  if constexpr (add) {
    load_tile<0>(sums, kRow);
    load_tile<1>(sums + 16, kRow);
    load_tile<2>(lower, kRow);
    load_tile<3>(lower + 16, kRow);
  } else {
    clear_tile<0>();
    clear_tile<1>();
    clear_tile<2>();
    clear_tile<3>();
  }
  for (int64_t step = 0; step < steps; ++step) add_bf16_step(a + step * kStepWords, b + step * kStepWords);
  store_tile<0>(sums, kRow);
  store_tile<1>(sums + 16, kRow);
  store_tile<2>(lower, kRow);
  store_tile<3>(lower + 16, kRow);
}

// The keys from `key` on that every query of a block sees, or some of them.
struct KeyBlock {
  int64_t rows;     // keys that there are
  int64_t visible;  // of which query i sees the first `visible + i`
  bool whole() const { return rows >= kBlock && visible >= kBlock; }
};
[[gnu::always_inline]] static inline KeyBlock key_block(const TileKeys& keys, int64_t key, int64_t query) {
  return {keys.count - key, keys.visible - key + query};
}
// Whether query i of a block of them, i from `at` on, sees key `row` of this one.
[[gnu::always_inline]] static inline F32 seen(const KeyBlock& block, int64_t row, int64_t at, F32 x, F32 otherwise) {
  I32 lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  const int64_t least = row < block.rows ? row - block.visible + 1 - at : kLanes;
  return lane >= static_cast<int32_t>(least < kLanes ? least : kLanes) ? x : otherwise;
}

// The maxima of a block's columns.
template <bool whole>
[[gnu::always_inline]] static inline void add_maxima(const KeyBlock& block, const float* scores, F32 (&most)[kHalves]) {
  F32 other[kHalves] = {most[0], most[1]};
  for (int64_t row = 0; row < kBlock; row += 2) {
    for (int64_t half = 0; half < kHalves; ++half) {
      const float* const at = scores + row * kBlock + half * kLanes;
      F32 x = load(at), y = load(at + kBlock);
      if constexpr (!whole) {
        x = seen(block, row, half * kLanes, x, set(-__builtin_inff()));
        y = seen(block, row + 1, half * kLanes, y, set(-__builtin_inff()));
      }
      most[half] = max(most[half], x);
      other[half] = max(other[half], y);
    }
  }
  for (int64_t half = 0; half < kHalves; ++half) most[half] = max(most[half], other[half]);
}

static constexpr float kMostExponent = 8;

struct Exponents {
  F32 factor, shift[kHalves];  // of powers of two
  F32 sum[kHalves]{}, other[kHalves]{};
};

// Exponentials of a block of scores, added up and put in pairs of keys.
template <bool whole>
[[gnu::always_inline]] static inline void put_exponentials(const KeyBlock& block, const float* scores, Exponents& e,
                                                           uint32_t* to) {
  for (int64_t row = 0; row < kBlock; row += 2) {
    for (int64_t half = 0; half < kHalves; ++half) {
      const float* const at = scores + row * kBlock + half * kLanes;
      F32 x = rough_exp2(fma(load(at), e.factor, e.shift[half]));
      F32 y = rough_exp2(fma(load(at + kBlock), e.factor, e.shift[half]));
      if constexpr (!whole) {
        x = seen(block, row, half * kLanes, x, F32{});
        y = seen(block, row + 1, half * kLanes, y, F32{});
      }
      e.sum[half] += x;
      e.other[half] += y;
      put(to + half * kTileWords + row / 2 * kLanes, rounded_pairs(x, y));
    }
  }
}

// Blocks of keys that some query of a block, the first of which is `query`, sees.
[[gnu::always_inline]] static inline int64_t seen_blocks(const TileKeys& keys, int64_t query) {
  const int64_t last = keys.visible + query + kBlock - 1;
  const int64_t count = last < keys.count ? last : keys.count;
  return count <= 0 ? 0 : (count + kBlock - 1) / kBlock;
}

static void scale_columns(int64_t rows, const F32 (&factor)[kHalves], float* x) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t half = 0; half < kHalves; ++half) {
      float* const at = x + row * kBlock + half * kLanes;
      store(at, load(at) * factor[half]);
    }
  }
}

[[gnu::always_inline]] static inline bool are_all_one(F32 x) {
  const I32 equal = x == 1.0F;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (equal[i] == 0) return false;
  }
  return true;
}

// What a block of queries keeps: its scores and probabilities take turns with those of the next block.
struct ForwardBlock {
  const TileForward& t;
  int64_t block;  // of queries

  int64_t keys() const { return block >= t.blocks ? 0 : seen_blocks(t.keys, block * kBlock); }
  float* scores(int64_t i) const { return t.scores + (block % 2 * (kMostTileKeys / kBlock) + i) * kScores; }
  uint32_t* p(int64_t i) const { return t.p + (block % 2 * (kMostTileKeys / kBlock) + i) * kStepWords; }
  float* out() const { return t.out + block * t.steps * kScores; }

  [[gnu::always_inline]] void multiply_scores(int64_t i) const {
    multiply_packed_tiles<false>(t.steps, t.k + i * t.steps * kStepWords, t.q + block * t.steps * kStepWords,
                                 scores(i));
  }
  // A block of 32 elements of values.
  [[gnu::always_inline]] void add_values(int64_t line) const {
    float* const to = out() + line * kScores;
    if (t.first) {
      multiply_packed_tiles<false>(keys(), t.v + line * t.v_block, p(0), to);
    } else {
      multiply_packed_tiles<true>(keys(), t.v + line * t.v_block, p(0), to);
    }
  }
  [[gnu::always_inline]] void take_maxima(int64_t i, F32 (&most)[kHalves]) const {
    const KeyBlock at = key_block(t.keys, i * kBlock, block * kBlock);
    if (at.whole()) {
      add_maxima<true>(at, scores(i), most);
    } else {
      add_maxima<false>(at, scores(i), most);
    }
  }
  [[gnu::always_inline]] void take_exponentials(int64_t i, Exponents& e) const {
    const KeyBlock at = key_block(t.keys, i * kBlock, block * kBlock);
    if (at.whole()) {
      put_exponentials<true>(at, scores(i), e, p(i));
    } else {
      put_exponentials<false>(at, scores(i), e, p(i));
    }
  }

  // Powers are relative to a maximum that may be exceeded by a little: what was summed before is seldom scaled.
  Exponents begin(const F32 (&most)[kHalves]) const {
    Exponents e{.factor = set(t.scale * kLog2E)};
    F32 correction[kHalves];
    for (int64_t half = 0; half < kHalves; ++half) {
      const int64_t at = block * kBlock + half * kLanes;
      const F32 before = t.first ? set(-__builtin_inff()) : load(t.max + at), now = most[half] * e.factor;
      const F32 taken = now > before + kMostExponent ? now : before;
      correction[half] = taken == before ? set(1.0F) : exp2(before - taken);
      e.shift[half] = -taken;
      e.sum[half] = t.first ? F32{} : load(t.sum + at) * correction[half];
      store(t.max + at, taken);
    }
    if (!t.first && !(are_all_one(correction[0]) && are_all_one(correction[1])))
      scale_columns(t.steps * kBlock, correction, out());
    return e;
  }
  void end(const Exponents& e) const {
    for (int64_t half = 0; half < kHalves; ++half)
      store(t.sum + block * kBlock + half * kLanes, e.sum[half] + e.other[half]);
  }
};

// While a block's exponentials are in the vectors, the tiles multiply the scores of the next block and the values of
// the one before.
static void forward_tile(const TileForward& t) {
  const auto none = set(-__builtin_inff());
  int64_t block = 0;
  while (block < t.blocks && ForwardBlock{t, block}.keys() == 0) ++block;
  const int64_t begin = block;
  F32 most[kHalves] = {none, none};
  const ForwardBlock first{t, begin};
  for (int64_t i = 0; i < first.keys(); ++i) {
    first.multiply_scores(i);
    first.take_maxima(i, most);
  }
  for (; block < t.blocks; ++block) {
    const ForwardBlock before{t, block - 1}, now{t, block}, next{t, block + 1};
    const int64_t lines = block == begin ? 0 : t.steps, keys = now.keys(), next_keys = next.keys();
    Exponents e = now.begin(most);
    most[0] = most[1] = none;
    for (int64_t i = 0; i < keys || i < next_keys || i < lines; ++i) {
      if (i < next_keys) next.multiply_scores(i);
      if (i < lines) before.add_values(i);
      if (i < keys) now.take_exponentials(i, e);
      if (i < next_keys) next.take_maxima(i, most);
    }
    now.end(e);
  }
  if (begin == t.blocks) return;
  for (int64_t line = 0; line < t.steps; ++line) ForwardBlock{t, t.blocks - 1}.add_values(line);
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
