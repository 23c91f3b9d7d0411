// Sums of squares on fixed grids; see ops/reduce/exact_square_sum.cpp.
#pragma once

#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

inline constexpr int kDoubles = kLanes / 2;
inline constexpr int kMostDigits = 12;

typedef double F64 __attribute__((vector_size(kDoubles * 8)));
typedef float HalfF32 __attribute__((vector_size(kDoubles * 4)));
typedef int64_t I64 __attribute__((vector_size(kDoubles * 8)));

[[gnu::always_inline]] static inline void add_digits(HalfF32 x, const double* grids, double limit, int digits,
                                                     F64* sums) {
  const F64 wide = __builtin_convertvector(x, F64);
  const F64 square = wide * wide;
  const F64 infinite = F64{} + __builtin_inf();
  F64 rest = square >= limit ? infinite : square;
  for (int digit = 0; digit < digits; ++digit) {
    const F64 part = (rest + grids[digit]) - grids[digit];
    sums[digit] += part;
    rest -= part;
  }
}

static void exact_squares(int64_t n, const float* x, const double* grids, double limit, int digits, double* sums) {
  F64 lanes[kMostDigits]{};
  int64_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) {
    HalfF32 v;
    __builtin_memcpy(&v, x + i, sizeof v);
    add_digits(v, grids, limit, digits, lanes);
  }
  if (i < n) {
    HalfF32 v{};
    for (int64_t lane = 0; i + lane < n; ++lane) v[lane] = x[i + lane];
    add_digits(v, grids, limit, digits, lanes);
  }
  for (int digit = 0; digit < digits; ++digit) {
    for (int lane = 0; lane < kDoubles; ++lane) sums[digit] += lanes[digit][lane];
  }
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
