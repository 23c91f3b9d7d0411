// Loops over rows: softmax and its relatives, and the tiles of attention.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

struct SoftmaxAffine {
  float factor = 1;
  float add = 0;
  int64_t at = -1;  // none
  float more = 0;
};

template <class T>
struct RowLoops {
  void (*softmax)(int64_t n, const T* x, T* y);
  void (*softmax_grad)(int64_t n, const T* y, const T* dy, T* dx);
  void (*log_softmax)(int64_t n, const T* x, T* y);
  void (*log_softmax_grad)(int64_t n, const T* y, const T* dy, T* dx);
  // Sum of e^(x - max).
  float (*sum_exp)(int64_t n, const T* x, float max);
  // y = factor softmax(x) + add, and y[at] += more: the gradient of a cross entropy.
  void (*softmax_affine)(int64_t n, const T* x, const SoftmaxAffine& k, T* y);
};

struct AttentionLoops {
  // Attention, on a tile of scores[rows, width] with rows `stride` apart; row i sees `visible + i`
  // columns of it at most (and all of them where that is more). Each row: s = scale * s in powers of two, that is,
  // times log2(e); the new maximum; s = 2^(s - max), 0 where unseen; old sums and `correction` follow.
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
using cpu::SoftmaxAffine;

template <class T>
float sum_exp(int64_t n, const T* x, float most) {
  return sum_of(n, [&](auto v) { return keep(v, exp(v.get(x) - most)); });
}

// The exponentials of f32 are kept in y between the passes; of bf16 they are taken again, so that y
// is rounded once.
template <class T>
void softmax_affine(int64_t n, const T* x, const SoftmaxAffine& k, T* y) {
  constexpr bool kept = sizeof(T) == sizeof(float);
  const float most = max_of(n, x);
  const F32 at = k.at < 0 ? F32{} : exp(set(number(x + k.at) - most));
  const float total = sum_of(n, [&](auto v) {
    const F32 e = keep(v, exp(v.get(x) - most));
    if constexpr (kept) v.put(y, e);
    return e;
  });
  const F32 by = set(k.factor / total);
  const F32 add = set(k.add);
  for_each_vector(n, [&](auto v) {
    if constexpr (kept) {
      v.put(y, fma(v.get(y), by, add));
    } else {
      v.put(y, fma(exp(v.get(x) - most), by, add));
    }
  });
  if (k.at >= 0) put_number(y + k.at, fma(at, by, add)[0] + k.more);
}

template <class T>
void softmax(int64_t n, const T* x, T* y) {
  softmax_affine(n, x, {}, y);
}

template <class T>
void log_softmax(int64_t n, const T* x, T* y) {
  const float most = max_of(n, x);
  const auto log_sum = static_cast<float>(__builtin_log(static_cast<double>(sum_exp(n, x, most))));
  for_each_vector(n, [&](auto v) { v.put(y, (v.get(x) - most) - log_sum); });
}

template <class T>
void log_softmax_grad(int64_t n, const T* y, const T* dy, T* dx) {
  const F32 total = set(sum(n, dy));
  for_each_vector(n, [&](auto v) { v.put(dx, fma(-exp(v.get(y)), total, v.get(dy))); });
}

template <class T>
void softmax_grad(int64_t n, const T* y, const T* dy, T* dx) {
  const float total = dot(n, y, dy);
  for_each_vector(n, [&](auto v) { v.put(dx, v.get(y) * (v.get(dy) - total)); });
}

// Columns of a row that are seen.
[[gnu::always_inline]] static inline int64_t seen(Lines tile, int64_t visible, int64_t row) {
  const int64_t columns = visible + row;
  return columns < 0 ? 0 : columns < tile.size ? columns : tile.size;
}

static void zero(int64_t from, int64_t to, float* x) {
  for (int64_t i = from; i < to; ++i) x[i] = 0;
}

static void online_softmax(Lines tile, int64_t stride, int64_t visible, float scale, float* scores, float* max,
                           float* sum, float* correction) {
  const float scale_2 = scale * kLog2E;
  // All maxima first, so that no row waits for its own.
  for (int64_t row = 0; row < tile.rows; ++row) {
    const int64_t n = seen(tile, visible, row);
    const float most = n == 0 ? max[row] : max_of(n, scores + row * stride) * scale_2;
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
    const float total = sum_of(n, [&](auto v) {
      const F32 e = keep(v, exp2(fma(v.get(s), factor, shift)));
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
    for_each_vector(n, [&](auto v) {
      const F32 p = exp2(fma(v.get(s), factor_2, shift));
      v.put(s, p);
      v.put(ds, p * (v.get(ds) - less) * factor);
    });
    zero(n, tile.size, s);
    zero(n, tile.size, ds);
  }
}

template <class T>
constexpr cpu::RowLoops<T> row_loops() {
  return {.softmax = softmax<T>,
          .softmax_grad = softmax_grad<T>,
          .log_softmax = log_softmax<T>,
          .log_softmax_grad = log_softmax_grad<T>,
          .sum_exp = sum_exp<T>,
          .softmax_affine = softmax_affine<T>};
}

constexpr cpu::AttentionLoops attention_loops() {
  return {.online_softmax = online_softmax,
          .finish_softmax = finish_softmax,
          .scale_rows = scale_rows,
          .softmax_tile_grad = softmax_tile_grad};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
