// Softmax and its relatives, over one row.
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

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/reduce.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

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

template <class T>
constexpr cpu::RowLoops<T> row_loops() {
  return {.softmax = softmax<T>,
          .softmax_grad = softmax_grad<T>,
          .log_softmax = log_softmax<T>,
          .log_softmax_grad = log_softmax_grad<T>,
          .sum_exp = sum_exp<T>,
          .softmax_affine = softmax_affine<T>};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
