// The gradient of attention by the tiles of AMX, and the table of both (cpu/isa/tile_attention.h).
#pragma once

#include "trireme/backend/cpu/isa/tile_attention_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::kMostTileKeys;
using cpu::TileBackward;

// Two rows of probabilities p = e^(scale s - lse) and of ds = p (dp - delta), 0 where unseen.
struct Gradients {
  F32 factor, shift[kHalves], delta[kHalves];
};
template <bool whole>
[[gnu::always_inline]] static inline void put_gradients(const KeyBlock& block, const float* scores, const float* dp,
                                                        const Gradients& k, uint32_t* p, uint32_t* ds,
                                                        uint32_t* ds_terms) {
  for (int64_t row = 0; row < kBlock; row += 2) {
    U16Pair slopes[2];
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t at = (row + i) * kBlock;
      F32 weight[kHalves], slope[kHalves];
      for (int64_t half = 0; half < kHalves; ++half) {
        const int64_t here = at + half * kLanes;
        F32 x = rough_exp2(fma(load(scores + here), k.factor, k.shift[half]));
        F32 y = x * (load(dp + here) - k.delta[half]);
        if constexpr (!whole) {
          x = seen(block, row + i, half * kLanes, x, F32{});
          y = seen(block, row + i, half * kLanes, y, F32{});
        }
        weight[half] = x;
        slope[half] = y;
      }
      put(p + (row + i) * kLanes, rounded_beside(weight[0], weight[1]));
      slopes[i] = rounded_beside(slope[0], slope[1]);
      put(ds + (row + i) * kLanes, slopes[i]);
    }
    put(ds_terms + row / 2 * kLanes, first_pairs(slopes[0], slopes[1]));
    put(ds_terms + kTileWords + row / 2 * kLanes, second_pairs(slopes[0], slopes[1]));
  }
}

// A block of queries and the blocks of keys that it sees. Their scores take turns.
struct BackwardBlock {
  const TileBackward& t;
  int64_t block;  // of queries
  Gradients k;
  alignas(64) float scores[2][kScores], dp[2][kScores];

  BackwardBlock(const TileBackward& tile, int64_t queries) : t(tile), block(queries) {
    k.factor = set(t.scale * kLog2E);
    for (int64_t half = 0; half < kHalves; ++half) {
      k.shift[half] = load(t.lse + block * kBlock + half * kLanes) * -kLog2E;
      k.delta[half] = load(t.delta + block * kBlock + half * kLanes);
    }
  }
  int64_t keys() const { return seen_blocks(t.keys, block * kBlock); }
  [[gnu::always_inline]] void multiply(int64_t i) {
    const int64_t words = t.steps * kStepWords;
    multiply_packed_tiles<false>(t.steps, t.k + i * words, t.q + block * words, scores[i % 2]);
    multiply_packed_tiles<false>(t.steps, t.v + i * words, t.dout + block * words, dp[i % 2]);
  }
  [[gnu::always_inline]] void take_gradients(int64_t i) {
    const KeyBlock keys = key_block(t.keys, i * kBlock, block * kBlock);
    const int64_t at = (i * t.blocks + block) * kStepWords;
    uint32_t* const terms = ds_terms(t, block) + i * kStepWords;
    if (keys.whole()) {
      put_gradients<true>(keys, scores[i % 2], dp[i % 2], k, t.p + at, t.ds + at, terms);
    } else {
      put_gradients<false>(keys, scores[i % 2], dp[i % 2], k, t.p + at, t.ds + at, terms);
    }
  }
  static uint32_t* ds_terms(const TileBackward& t, int64_t block) {
    return t.ds_terms + block * (kMostTileKeys / kBlock) * kStepWords;
  }
};

// 32 elements of the gradients of a block of queries.
[[gnu::always_inline]] static inline void add_to_dq(const TileBackward& t, int64_t block, int64_t line) {
  multiply_packed_tiles<true>(seen_blocks(t.keys, block * kBlock), t.k_terms + line * t.k_block,
                              BackwardBlock::ds_terms(t, block), t.dq + (block * t.steps + line) * kScores);
}

// The gradients of a block of keys and its values, of all queries that see them.
[[gnu::always_inline]] static inline void add_to_dk_dv(const TileBackward& t, int64_t i) {
  int64_t first = 0;
  while (seen_blocks(t.keys, first * kBlock) <= i) ++first;
  const int64_t at = (i * t.blocks + first) * kStepWords;
  for (int64_t line = 0; line < t.steps; ++line) {
    const int64_t terms = (line * t.blocks + first) * kStepWords, to = (i * t.steps + line) * kScores;
    multiply_packed_tiles<true>(t.blocks - first, t.p + at, t.dout_terms + terms, t.dv + to);
    multiply_packed_tiles<true>(t.blocks - first, t.ds + at, t.q_terms + terms, t.dk + to);
  }
}

// While the scores of a block of keys are in the vectors, the tiles multiply those of the next one, and what has come
// out of the vectors before.
static void backward_tile(const TileBackward& t) {
  for (int64_t block = 0; block < t.blocks; ++block) {
    BackwardBlock now(t, block);
    const int64_t keys = now.keys(), lines = block == 0 ? 0 : t.steps;
    const bool last = block + 1 == t.blocks;
    if (keys > 0) now.multiply(0);
    for (int64_t i = 0; i < keys || i < lines; ++i) {
      if (i + 1 < keys) now.multiply(i + 1);
      if (i < lines) add_to_dq(t, block - 1, i);
      if (last && i > 0 && i <= keys) add_to_dk_dv(t, i - 1);
      if (i < keys) now.take_gradients(i);
    }
    if (last && keys > 0 && keys >= lines) add_to_dk_dv(t, keys - 1);
  }
  for (int64_t line = 0; line < t.steps; ++line) add_to_dq(t, t.blocks - 1, line);
}

constexpr cpu::TileAttentionLoops make_tile_attention_table() {
  return {tile_head_loops(), forward_tile, backward_tile};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
