// The transforms of convolutions of 3 x 3 taps by Winograd's minimal filtering F(4x4, 3x3): from patches of 6 x 6
// positions, weights and results to 6 x 6 places each, where a convolution is a product for each place, and back.
// (Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.)
#pragma once

#include <cstdint>

namespace trireme::cpu {

// Squares of numbers, one for each of some channels, which lie side by side: number (i, j) of the first channel is
// data[first + i row + j column]. Those outside of `rows` and `columns` are taken for zero, and are not written.
struct SquareRange {
  int64_t begin = 0, end = 6;
};
template <class T>
struct SquaresOf {
  T* data = nullptr;
  int64_t first = 0, row = 0, column = 0;
  SquareRange rows = {}, columns = {};
};

// For each of some channels, to = m from m^T, with a matrix m for each transform.
using WinogradTransform = void(int64_t channels, const SquaresOf<const float>& from, const SquaresOf<float>& to);

struct WinogradLoops {
  WinogradTransform* winograd_patch;        // 6 x 6 positions of x to 6 x 6
  WinogradTransform* winograd_weight;       // 3 x 3 to 6 x 6
  WinogradTransform* winograd_result;       // 6 x 6 to 4 x 4 positions of y
  WinogradTransform* winograd_result_grad;  // 4 x 4 positions of dy to 6 x 6
  WinogradTransform* winograd_weight_grad;  // 6 x 6 to 3 x 3
};

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::SquareRange;
using cpu::SquaresOf;

// The points at which polynomials are multiplied are 0, 5/8, -5/8, 3/2, -3/2 and infinity, in this order. With them
// errors are smaller than with the whole numbers 1 and 2: a patch's transform enlarges numbers 5.3 times at most, not
// 10 times. oneDNN's F(4x4, 3x3) has the same points.
inline constexpr float kP = 0.625F, kP2 = kP * kP, kP3 = kP2 * kP;
inline constexpr float kQ = 1.5F, kQ2 = kQ * kQ, kQ3 = kQ2 * kQ;
// One by the product of a point's distances from the others.
inline constexpr float kOf0 = 1 / (kP2 * kQ2), kOfP = 1 / (2 * kP2 * (kP2 - kQ2)), kOfQ = 1 / (2 * kQ2 * (kQ2 - kP2));

struct PatchMap {
  static constexpr int kFrom = 6, kTo = 6;
  [[gnu::always_inline]] static void apply(const F32* x, F32* y) {
    const F32 all = set(-(kP2 + kQ2)), both = set(kP2 * kQ2);
    y[0] = fma(both, x[0], fma(all, x[2], x[4]));
    const F32 even_p = fma(set(-kQ2), x[2], x[4]), odd_p = fma(set(-kQ2), x[1], x[3]);
    y[1] = fma(set(kP), odd_p, even_p);
    y[2] = fma(set(-kP), odd_p, even_p);
    const F32 even_q = fma(set(-kP2), x[2], x[4]), odd_q = fma(set(-kP2), x[1], x[3]);
    y[3] = fma(set(kQ), odd_q, even_q);
    y[4] = fma(set(-kQ), odd_q, even_q);
    y[5] = fma(both, x[1], fma(all, x[3], x[5]));
  }
};

struct WeightMap {
  static constexpr int kFrom = 3, kTo = 6;
  [[gnu::always_inline]] static void apply(const F32* x, F32* y) {
    y[0] = set(kOf0) * x[0];
    const F32 even_p = fma(set(kOfP * kP2), x[2], set(kOfP) * x[0]),
              even_q = fma(set(kOfQ * kQ2), x[2], set(kOfQ) * x[0]);
    y[1] = fma(set(kOfP * kP), x[1], even_p);
    y[2] = fma(set(-kOfP * kP), x[1], even_p);
    y[3] = fma(set(kOfQ * kQ), x[1], even_q);
    y[4] = fma(set(-kOfQ * kQ), x[1], even_q);
    y[5] = x[2];
  }
};

struct ResultMap {
  static constexpr int kFrom = 6, kTo = 4;
  [[gnu::always_inline]] static void apply(const F32* x, F32* y) {
    const F32 sum_p = x[1] + x[2], difference_p = x[1] - x[2];
    const F32 sum_q = x[3] + x[4], difference_q = x[3] - x[4];
    y[0] = x[0] + sum_p + sum_q;
    y[1] = fma(set(kQ), difference_q, set(kP) * difference_p);
    y[2] = fma(set(kQ2), sum_q, set(kP2) * sum_p);
    y[3] = fma(set(kQ3), difference_q, fma(set(kP3), difference_p, x[5]));
  }
};

// The transpose of ResultMap.
struct ResultGradMap {
  static constexpr int kFrom = 4, kTo = 6;
  [[gnu::always_inline]] static void apply(const F32* x, F32* y) {
    y[0] = x[0];
    const F32 even_p = fma(set(kP2), x[2], x[0]), odd_p = fma(set(kP2), x[3], x[1]);
    y[1] = fma(set(kP), odd_p, even_p);
    y[2] = fma(set(-kP), odd_p, even_p);
    const F32 even_q = fma(set(kQ2), x[2], x[0]), odd_q = fma(set(kQ2), x[3], x[1]);
    y[3] = fma(set(kQ), odd_q, even_q);
    y[4] = fma(set(-kQ), odd_q, even_q);
    y[5] = x[3];
  }
};

// The transpose of WeightMap.
struct WeightGradMap {
  static constexpr int kFrom = 6, kTo = 3;
  [[gnu::always_inline]] static void apply(const F32* x, F32* y) {
    const F32 sum_p = x[1] + x[2], sum_q = x[3] + x[4];
    y[0] = fma(set(kOf0), x[0], fma(set(kOfP), sum_p, set(kOfQ) * sum_q));
    y[1] = fma(set(kOfP * kP), x[1] - x[2], set(kOfQ * kQ) * (x[3] - x[4]));
    y[2] = fma(set(kOfP * kP2), sum_p, fma(set(kOfQ * kQ2), sum_q, x[5]));
  }
};

[[gnu::always_inline]] static inline bool is_in(SquareRange range, int64_t i) {
  return i >= range.begin && i < range.end;
}

// One vector of channels: first the columns, then the rows of what that gives. With `whole` all numbers are there.
template <class Map, bool whole, class V>
[[gnu::always_inline]] static inline void transform_squares(V at, const SquaresOf<const float>& from,
                                                            const SquaresOf<float>& to) {
  constexpr int kFrom = Map::kFrom, kTo = Map::kTo;
  F32 half[kTo][kFrom];
#pragma GCC unroll 1
  for (int j = 0; j < kFrom; ++j) {
    F32 column[kFrom], made[kTo];
    const int64_t first = from.first + j * from.column;
    const bool there = whole || is_in(from.columns, j);
#pragma GCC unroll 6
    for (int i = 0; i < kFrom; ++i)
      column[i] = whole || (there && is_in(from.rows, i)) ? at.get(from.data + first + i * from.row) : F32{};
    Map::apply(column, made);
#pragma GCC unroll 6
    for (int i = 0; i < kTo; ++i) half[i][j] = made[i];
  }
#pragma GCC unroll 1
  for (int i = 0; i < kTo; ++i) {
    F32 made[kTo];
    Map::apply(half[i], made);
    if (!whole && !is_in(to.rows, i)) continue;
    const int64_t first = to.first + i * to.row;
#pragma GCC unroll 6
    for (int j = 0; j < kTo; ++j) {
      if (whole || is_in(to.columns, j)) at.put(to.data + first + j * to.column, made[j]);
    }
  }
}

template <class Map>
void winograd_transform(int64_t channels, const SquaresOf<const float>& from, const SquaresOf<float>& to) {
  const auto has = [](SquareRange range, int64_t n) { return range.begin <= 0 && range.end >= n; };
  if (has(from.rows, Map::kFrom) && has(from.columns, Map::kFrom) && has(to.rows, Map::kTo) &&
      has(to.columns, Map::kTo)) {
    for_each_vector(channels, [&](auto v) { transform_squares<Map, true>(v, from, to); });
  } else {
    for_each_vector(channels, [&](auto v) { transform_squares<Map, false>(v, from, to); });
  }
}

constexpr cpu::WinogradLoops winograd_loops() {
  return {.winograd_patch = winograd_transform<PatchMap>,
          .winograd_weight = winograd_transform<WeightMap>,
          .winograd_result = winograd_transform<ResultMap>,
          .winograd_result_grad = winograd_transform<ResultGradMap>,
          .winograd_weight_grad = winograd_transform<WeightGradMap>};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
