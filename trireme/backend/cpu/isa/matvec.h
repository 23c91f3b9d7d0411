// A vector times a matrix: what a product of one row is. The matrix is read once, from memory, so several of its rows
// are read side by side, and each asks for the row that follows when they are done: rows are short, and the processor
// alone begins each of them anew.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

// Rows of the matrix, `stride` apart. An element's sum is taken in the same order wherever it stands and however many
// there are beside it.
template <class T>
struct MatVecLoops {
  // y[x.size] = sum over rows of a[row] x[row, :]
  void (*sum_of_rows)(Lines x, int64_t stride, const float* a, const T* from, float* y);
  // y[x.rows] = each row times a[x.size]
  void (*dots_of_rows)(Lines x, int64_t stride, const float* a, const T* from, float* y);
};

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::Lines;

// Adds so many rows to y, or begins it with them.
template <int rows, class T>
[[gnu::always_inline]] static inline void add_rows(int64_t n, int64_t stride, bool first, const float* a, const T* from,
                                                   float* y) {
  for_each_vector(n, [&](auto v) {
    F32 sum = first ? F32{} : v.get(y);
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
      sum = fma(set(a[row]), v.get(from + row * stride), sum);
      __builtin_prefetch(from + (row + rows) * stride + v.at);
    }
    v.put(y, sum);
  });
}

template <class T>
void sum_of_rows(Lines x, int64_t stride, const float* a, const T* from, float* y) {
  constexpr int kTogether = 8;
  if (x.rows == 0) for_each_vector(x.size, [&](auto v) { v.put(y, F32{}); });
  int64_t row = 0;
  for (; row + kTogether <= x.rows; row += kTogether)
    add_rows<kTogether>(x.size, stride, row == 0, a + row, from + row * stride, y);
  for (; row < x.rows; ++row) add_rows<1>(x.size, stride, row == 0, a + row, from + row * stride, y);
}

template <int rows, class T>
[[gnu::always_inline]] static inline void dot_rows(int64_t n, int64_t stride, const float* a, const T* from, float* y) {
  F32 sums[rows];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) sums[row] = F32{};
  for_each_vector(n, [&](auto v) {
    const F32 factor = v.get(a);
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
      sums[row] = fma(factor, v.get(from + row * stride), sums[row]);
      __builtin_prefetch(from + (row + rows) * stride + v.at);
    }
  });
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) y[row] = sum_lanes(sums[row]);
}

template <class T>
void dots_of_rows(Lines x, int64_t stride, const float* a, const T* from, float* y) {
  constexpr int kTogether = 8;
  int64_t row = 0;
  for (; row + kTogether <= x.rows; row += kTogether)
    dot_rows<kTogether>(x.size, stride, a, from + row * stride, y + row);
  for (; row < x.rows; ++row) dot_rows<1>(x.size, stride, a, from + row * stride, y + row);
}

template <class T>
constexpr cpu::MatVecLoops<T> matvec_loops() {
  return {.sum_of_rows = sum_of_rows<T>, .dots_of_rows = dots_of_rows<T>};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
