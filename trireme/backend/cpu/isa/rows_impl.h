// Loops over rows: sums, softmax, normalisation, and the tiles of attention.
#pragma once

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::Lines;

// sum over i of term(vector i) with four accumulators; term(v) is zero where a vector is cut off.
template <class Term>
[[gnu::always_inline]] static inline float sum_of(int64_t n, Term&& term) {
  F32 sum[4]{};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int64_t j = 0; j < 4; ++j) sum[j] += term(Whole{i + j * kLanes});
  }
  for (; i + kLanes <= n; i += kLanes) sum[0] += term(Whole{i});
  if (i < n) sum[1] += term(Rest{i, n - i});
  return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// Zero in the lanes that a cut off vector does not have.
[[gnu::always_inline]] static inline F32 keep(Whole, F32 x) {
  return x;
}
[[gnu::always_inline]] static inline F32 keep(Rest v, F32 x) {
  I32 lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane < static_cast<int32_t>(v.count) ? x : F32{};
}

static float sum(int64_t n, const float* x) {
  return sum_of(n, [&](auto v) { return v.get(x); });
}

static float square_sum(int64_t n, const float* x) {
  return sum_of(n, [&](auto v) {
    const F32 a = v.get(x);
    return a * a;
  });
}

static float dot(int64_t n, const float* a, const float* b) {
  return sum_of(n, [&](auto v) { return v.get(a) * v.get(b); });
}

// n > 0.
static float max_of(int64_t n, const float* x) {
  F32 most = set(x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = max(most, load(x + i));
  float result = max_lanes(most);
  for (; i < n; ++i) result = result > x[i] ? result : x[i];
  return result;
}

static float sum_exp(int64_t n, const float* x, float most) {
  return sum_of(n, [&](auto v) { return keep(v, exp(v.get(x) - most)); });
}

static void softmax_affine(int64_t n, const float* x, float factor, float add, float* y) {
  const float most = max_of(n, x);
  const float total = sum_of(n, [&](auto v) {
    const F32 e = keep(v, exp(v.get(x) - most));
    v.put(y, e);
    return e;
  });
  const F32 by = set(factor / total);
  for_each_vector(n, [&](auto v) { v.put(y, fma(v.get(y), by, set(add))); });
}

static void softmax(int64_t n, const float* x, float* y) {
  softmax_affine(n, x, 1.0F, 0.0F, y);
}

static void softmax_grad(int64_t n, const float* y, const float* dy, float* dx) {
  const float total = dot(n, y, dy);
  for_each_vector(n, [&](auto v) { v.put(dx, v.get(y) * (v.get(dy) - total)); });
}

static void layer_norm(Lines lines, const float* x, const float* gamma, const float* beta,
                       float eps, float* y, float* mean, float* rstd) {
  const float inverse = 1.0F / static_cast<float>(lines.size);
  for (int64_t row = 0; row < lines.rows; ++row) {
    const float* in = x + row * lines.size;
    float* out = y + row * lines.size;
    const float center = sum(lines.size, in) * inverse;
    const float variance = inverse * sum_of(lines.size, [&](auto v) {
                             const F32 d = keep(v, v.get(in) - center);
                             return d * d;
                           });
    const float scale = 1.0F / __builtin_sqrtf(variance + eps);
    for_each_vector(lines.size, [&](auto v) {
      v.put(out, fma((v.get(in) - center) * scale, v.get(gamma), v.get(beta)));
    });
    mean[row] = center;
    rstd[row] = scale;
  }
}

static void layer_norm_grad(Lines lines, const float* x, const float* gamma, const float* mean,
                            const float* rstd, const float* dy, float* dx, float* dgamma,
                            float* dbeta) {
  const int64_t n = lines.size;
  const float inverse = 1.0F / static_cast<float>(n);
  for (int64_t row = 0; row < lines.rows; ++row) {
    const float* in = x + row * n;
    const float* up = dy + row * n;
    float* out = dx + row * n;
    const float center = mean[row];
    const float scale = rstd[row];
    F32 sum_g[2]{};
    F32 sum_gn[2]{};
    int64_t turn = 0;
    for_each_vector(n, [&](auto v) {
      const F32 d = v.get(up);
      const F32 normal = (v.get(in) - center) * scale;
      const F32 g = d * v.get(gamma);
      v.put(dgamma, fma(d, normal, v.get(dgamma)));
      v.put(dbeta, v.get(dbeta) + d);
      sum_g[turn & 1] += g;
      sum_gn[turn & 1] = fma(g, normal, sum_gn[turn & 1]);
      ++turn;
    });
    const float mean_g = sum_lanes(sum_g[0] + sum_g[1]) * inverse;
    const float mean_gn = sum_lanes(sum_gn[0] + sum_gn[1]) * inverse;
    for_each_vector(n, [&](auto v) {
      const F32 normal = (v.get(in) - center) * scale;
      v.put(out, scale * (fma(v.get(up), v.get(gamma), -fma(normal, set(mean_gn), set(mean_g)))));
    });
  }
}

// Columns of a row that are seen.
[[gnu::always_inline]] static inline int64_t seen(Lines tile, int64_t visible, int64_t row) {
  const int64_t columns = visible + row;
  return columns < 0 ? 0 : columns < tile.size ? columns : tile.size;
}

static void zero(int64_t from, int64_t to, float* x) {
  for (int64_t i = from; i < to; ++i) x[i] = 0;
}

static void online_softmax(Lines tile, int64_t stride, int64_t visible, float scale, float* scores,
                           float* max, float* sum, float* correction) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    float* s = scores + row * stride;
    const int64_t n = seen(tile, visible, row);
    zero(n, tile.size, s);
    correction[row] = 1;
    if (n == 0) continue;
    const float most_here = max_of(n, s) * scale;
    const float most = most_here > max[row] ? most_here : max[row];
    const float total = sum_of(n, [&](auto v) {
      const F32 e = keep(v, exp(fma(v.get(s), set(scale), set(-most))));
      v.put(s, e);
      return e;
    });
    correction[row] = exp(set(max[row] - most))[0];
    sum[row] = sum[row] * correction[row] + total;
    max[row] = most;
  }
}

static void recompute_softmax(Lines tile, int64_t stride, int64_t visible, float scale,
                              const float* lse, float* scores) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    float* s = scores + row * stride;
    const int64_t n = seen(tile, visible, row);
    const F32 shift = set(-lse[row]);
    for_each_vector(n, [&](auto v) { v.put(s, exp(fma(v.get(s), set(scale), shift))); });
    zero(n, tile.size, s);
  }
}

static void scale_rows(Lines lines, int64_t stride, const float* factor, float* x) {
  for (int64_t row = 0; row < lines.rows; ++row) {
    float* line = x + row * stride;
    const float f = factor[row];
    for_each_vector(lines.size, [&](auto v) { v.put(line, v.get(line) * f); });
  }
}

static void softmax_tile_grad(Lines tile, int64_t stride, float scale, const float* delta,
                              const float* p, float* dp) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const float* line = p + row * stride;
    float* out = dp + row * stride;
    const float d = delta[row];
    for_each_vector(tile.size, [&](auto v) { v.put(out, v.get(line) * (v.get(out) - d) * scale); });
  }
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
