// The tiles of attention: softmax of the scores as they come, and its gradient.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

struct AttentionLoops {
  // Attention, on a tile of scores[rows, width] with rows `stride` apart, which have room for whole vectors; row i sees
  // `visible + i` columns of it at most (and all of them where that is more). Each row: s = scale * s in powers of two,
  // that is, times log2(e); the new maximum; s = 2^(s - max), 0 where unseen; old sums and `correction` follow.
  void (*online_softmax)(Lines tile, int64_t stride, int64_t visible, float scale, float* scores, float* max,
                         float* sum, float* correction);
  // Natural logarithms of the sums of exponentials, of what online_softmax kept; and 1 / sum over the sums.
  void (*finish_softmax)(int64_t rows, const float* max, float* sum, float* lse);
  // x[row, :] *= factor[row]
  void (*scale_rows)(Lines lines, int64_t stride, const float* factor, float* x);
  // p = e^(scale s - lse) over the scores s, and ds = p (dp - delta[row]) scale over dp; both 0 where unseen.
  void (*softmax_tile_grad)(Lines tile, int64_t stride, int64_t visible, float scale, const float* lse,
                            const float* delta, float* scores, float* dp);
};

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/reduce.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::Lines;

// Columns of a row that are seen.
[[gnu::always_inline]] static inline int64_t seen(Lines tile, int64_t visible, int64_t row) {
  const int64_t columns = visible + row;
  return columns < 0 ? 0 : columns < tile.size ? columns : tile.size;
}

// Up to whole vectors.
static void zero(int64_t from, int64_t to, float* x) {
  for (int64_t i = (from + kLanes - 1) / kLanes * kLanes; i < to; i += kLanes) store(x + i, F32{});
}

// n > 0.
[[gnu::always_inline]] static inline float max_of_seen(int64_t n, const float* x) {
  F32 most = set(x[0]), other = most;  // two, so that neither waits for itself
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    most = max(most, load(x + i));
    other = max(other, load(x + i + kLanes));
  }
  if (i + kLanes <= n) {
    most = max(most, load(x + i));
    i += kLanes;
  }
  if (i < n) other = max(other, first_lanes(n - i, load(x + i), other));
  return max_lanes(max(most, other));
}

static void online_softmax(Lines tile, int64_t stride, int64_t visible, float scale, float* scores, float* max,
                           float* sum, float* correction) {
  const float scale_2 = scale * kLog2E;
  // All maxima first, so that no row waits for its own.
  for (int64_t row = 0; row < tile.rows; ++row) {
    const int64_t n = seen(tile, visible, row);
    const float most = n == 0 ? max[row] : max_of_seen(n, scores + row * stride) * scale_2;
    correction[row] = most > max[row] ? most : max[row];
  }
  for_each_vector(tile.rows, [&](auto v) {
    const F32 most = v.get(correction), before = v.get(max);
    v.put(correction, most == before ? set(1.0F) : exp2(before - most));
    v.put(max, most);
  });
  for (int64_t row = 0; row < tile.rows; ++row) {
    float* s = scores + row * stride;
    const int64_t n = seen(tile, visible, row);
    const F32 factor = set(scale_2), shift = set(-max[row]);
    const float total = sum_of<Padded>(n, [&](auto v) {
      const F32 e = keep(v, exp2_of_small(fma(v.get(s), factor, shift)));
      v.put(s, e);
      return e;
    });
    sum[row] = sum[row] * correction[row] + total;
    zero(n, tile.size, s);
  }
}

static void finish_softmax(int64_t rows, const float* max, float* sum, float* lse) {
  for_each_vector(rows, [&](auto v) {
    const F32 total = v.get(sum);
    v.put(lse, fma(v.get(max), set(kLn2), log(total)));
    v.put(sum, 1.0F / total);
  });
}

static void scale_rows(Lines lines, int64_t stride, const float* factor, float* x) {
  for (int64_t row = 0; row < lines.rows; ++row) {
    float* line = x + row * stride;
    const float f = factor[row];
    for_each_vector(lines.size, [&](auto v) { v.put(line, v.get(line) * f); });
  }
}

static void softmax_tile_grad(Lines tile, int64_t stride, int64_t visible, float scale, const float* lse,
                              const float* delta, float* scores, float* dp) {
  const F32 factor = set(scale), factor_2 = set(scale * kLog2E);
  for (int64_t row = 0; row < tile.rows; ++row) {
    float* s = scores + row * stride;
    float* ds = dp + row * stride;
    const int64_t n = seen(tile, visible, row);
    const F32 shift = set(-lse[row] * kLog2E), less = set(delta[row]);
    for_each_vector<Padded>(n, [&](auto v) {
      const F32 p = keep(v, exp2(fma(v.get(s), factor_2, shift)));
      v.put(s, p);
      v.put(ds, keep(v, p * (v.get(ds) - less) * factor));
    });
    zero(n, tile.size, s);
    zero(n, tile.size, ds);
  }
}

constexpr cpu::AttentionLoops attention_loops() {
  return {.online_softmax = online_softmax,
          .finish_softmax = finish_softmax,
          .scale_rows = scale_rows,
          .softmax_tile_grad = softmax_tile_grad};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
