// Normalisation of rows and its gradients.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

template <class T>
struct NormLoops {
  void (*layer_norm)(Lines lines, const T* x, const float* gamma, const float* beta, float eps, T* y, float* mean,
                     float* rstd);
  // dgamma and dbeta are added to.
  void (*layer_norm_grad)(Lines lines, const T* x, const float* gamma, const float* mean, const float* rstd,
                          const T* dy, T* dx, float* dgamma, float* dbeta);

  void (*rms_norm)(Lines lines, const T* x, const float* gamma, float eps, T* y, float* rstd);
  void (*rms_norm_grad)(Lines lines, const T* x, const float* gamma, const float* rstd, const T* dy, T* dx,
                        float* dgamma);
};

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/reduce.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::Lines;

template <class T>
void layer_norm(Lines lines, const T* x, const float* gamma, const float* beta, float eps, T* y, float* mean,
                float* rstd) {
  const float inverse = 1.0F / static_cast<float>(lines.size);
  for (int64_t row = 0; row < lines.rows; ++row) {
    const T* in = x + row * lines.size;
    T* out = y + row * lines.size;
    const float center = sum(lines.size, in) * inverse;
    const float variance = inverse * sum_of(lines.size, [&](auto v) {
                             const F32 d = keep(v, v.get(in) - center);
                             return d * d;
                           });
    const float scale = 1.0F / __builtin_sqrtf(variance + eps);
    for_each_vector(lines.size,
                    [&](auto v) { v.put(out, fma((v.get(in) - center) * scale, v.get(gamma), v.get(beta))); });
    mean[row] = center;
    rstd[row] = scale;
  }
}

template <class T>
void layer_norm_grad(Lines lines, const T* x, const float* gamma, const float* mean, const float* rstd, const T* dy,
                     T* dx, float* dgamma, float* dbeta) {
  const int64_t n = lines.size;
  const float inverse = 1.0F / static_cast<float>(n);
  for (int64_t row = 0; row < lines.rows; ++row) {
    const T* in = x + row * n;
    const T* up = dy + row * n;
    T* out = dx + row * n;
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

template <class T>
void rms_norm(Lines lines, const T* x, const float* gamma, float eps, T* y, float* rstd) {
  const float inverse = 1.0F / static_cast<float>(lines.size);
  for (int64_t row = 0; row < lines.rows; ++row) {
    const T* in = x + row * lines.size;
    T* out = y + row * lines.size;
    const float scale = 1.0F / __builtin_sqrtf(square_sum(lines.size, in) * inverse + eps);
    for_each_vector(lines.size, [&](auto v) { v.put(out, v.get(in) * scale * v.get(gamma)); });
    rstd[row] = scale;
  }
}

template <class T>
void rms_norm_grad(Lines lines, const T* x, const float* gamma, const float* rstd, const T* dy, T* dx, float* dgamma) {
  const float inverse = 1.0F / static_cast<float>(lines.size);
  for (int64_t row = 0; row < lines.rows; ++row) {
    const T* in = x + row * lines.size;
    const T* up = dy + row * lines.size;
    T* out = dx + row * lines.size;
    const float scale = rstd[row];
    const F32 mean_gn = set(inverse * sum_of(lines.size, [&](auto v) {
                              const F32 d = v.get(up);
                              const F32 normal = v.get(in) * scale;
                              v.put(dgamma, fma(d, normal, v.get(dgamma)));
                              return d * v.get(gamma) * normal;
                            }));
    for_each_vector(lines.size, [&](auto v) {
      const F32 normal = v.get(in) * scale;
      v.put(out, scale * fma(v.get(up), v.get(gamma), -normal * mean_gn));
    });
  }
}

template <class T>
constexpr cpu::NormLoops<T> norm_loops() {
  return {.layer_norm = layer_norm<T>,
          .layer_norm_grad = layer_norm_grad<T>,
          .rms_norm = rms_norm<T>,
          .rms_norm_grad = rms_norm_grad<T>};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
