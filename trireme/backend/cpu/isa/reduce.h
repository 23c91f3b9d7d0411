// Loops that reduce a row to one number, or rows to one row: sums, extremes, the index of the largest element.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

template <class T>
struct ReduceLoops {
  // Sums of x, of x^2 and of a b over n elements; at most 2^20 of them, so that an f32 sum of lanes
  // stays exact enough.
  float (*sum)(int64_t n, const T* x);
  float (*square_sum)(int64_t n, const T* x);
  float (*dot)(int64_t n, const T* a, const T* b);
  // Of n > 0 elements. What is not a number is lost, or, by the second, the result.
  float (*max)(int64_t n, const T* x);
  float (*extreme[2])(int64_t n, const T* x);  // [0: largest, 1: smallest]
  // The first place of the largest of n > 0 elements; 0 where x[0] is not a number.
  int64_t (*argmax)(int64_t n, const T* x);
  // y += x, y = the larger or the smaller of y and x.
  void (*accumulate)(int64_t n, const T* x, float* y);
  void (*accumulate_extreme[2])(int64_t n, const T* x, float* y);
};

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/elementwise.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

template <class T>
void accumulate(int64_t n, const T* x, float* y) {
  for_each_vector(n, [&](auto v) { v.put(y, v.get(y) + v.get(x)); });
}

// sum over i of term(vector i) with four accumulators; term(v) is zero where a vector is cut off.
template <class Last = Rest, class Term>
[[gnu::always_inline]] static inline float sum_of(int64_t n, Term&& term) {
  F32 sum[4]{};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int64_t j = 0; j < 4; ++j) sum[j] += term(Whole{i + j * kLanes});
  }
  for (; i + kLanes <= n; i += kLanes) sum[0] += term(Whole{i});
  if (i < n) sum[1] += term(Last{i, n - i});
  return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// Zero in the lanes that a cut off vector does not have.
[[gnu::always_inline]] static inline F32 keep(Whole, F32 x) {
  return x;
}
[[gnu::always_inline]] static inline F32 first_lanes(int64_t count, F32 x, F32 otherwise) {
  I32 lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane < static_cast<int32_t>(count) ? x : otherwise;
}
[[gnu::always_inline]] static inline F32 keep(Rest v, F32 x) {
  return first_lanes(v.count, x, F32{});
}
[[gnu::always_inline]] static inline F32 keep(Padded v, F32 x) {
  return first_lanes(v.count, x, F32{});
}

template <class T>
float sum(int64_t n, const T* x) {
  return sum_of(n, [&](auto v) { return v.get(x); });
}

template <class T>
float square_sum(int64_t n, const T* x) {
  return sum_of(n, [&](auto v) {
    const F32 a = v.get(x);
    return a * a;
  });
}

template <class T>
float dot(int64_t n, const T* a, const T* b) {
  return sum_of(n, [&](auto v) { return v.get(a) * v.get(b); });
}

// n > 0.
template <class T>
float max_of(int64_t n, const T* x) {
  F32 most = set(number(x)), other = most;  // two, so that neither waits for itself
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    most = max(most, load(x + i));
    other = max(other, load(x + i + kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) most = max(most, load(x + i));
  float result = max_lanes(most > other ? most : other);
  for (; i < n; ++i) {
    const float next = number(x + i);
    result = result > next ? result : next;
  }
  return result;
}

// kMaximum or kMinimum of n > 0 elements; what is not a number is the result.
template <Binary kind, class T>
float extreme(int64_t n, const T* x) {
  const auto further = [](float a, float b) {
    const bool beyond = kind == Binary::kMaximum ? b > a : b < a;
    return beyond || b != b ? b : a;
  };
  F32 most = set(number(x));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = apply<kind>(most, load(x + i));
  float result = most[0];
  for (int lane = 1; lane < kLanes; ++lane) result = further(result, most[lane]);
  for (; i < n; ++i) result = further(result, number(x + i));
  return result;
}

template <Binary kind, class T>
void accumulate_extreme(int64_t n, const T* x, float* y) {
  for_each_vector(n, [&](auto v) { v.put(y, apply<kind>(v.get(y), v.get(x))); });
}

// The first place of the largest of n > 0 elements; only a first one that is not a number counts
// as such.
template <class T>
int64_t argmax(int64_t n, const T* x) {
  const float first = number(x);
  if (first != first) return 0;
  F32 most = set(first);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = max(load(x + i), most);
  float result = max_lanes(most);
  for (; i < n; ++i) result = number(x + i) > result ? number(x + i) : result;
  for (i = 0; number(x + i) != result;) ++i;
  return i;
}

template <class T>
constexpr cpu::ReduceLoops<T> reduce_loops() {
  return {.sum = sum<T>,
          .square_sum = square_sum<T>,
          .dot = dot<T>,
          .max = max_of<T>,
          .extreme = {extreme<Binary::kMaximum, T>, extreme<Binary::kMinimum, T>},
          .argmax = argmax<T>,
          .accumulate = accumulate<T>,
          .accumulate_extreme = {accumulate_extreme<Binary::kMaximum, T>, accumulate_extreme<Binary::kMinimum, T>}};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
