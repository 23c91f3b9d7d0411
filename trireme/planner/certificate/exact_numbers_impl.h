// Sums and products of a certificate's numbers: exact, or an error.
#pragma once

#include <cstdint>

#include "trireme/base/error.h"

namespace trireme {

// Apart from what is done for every number, so that that is a few instructions.
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_numbers(int64_t a, int64_t b, const char* what) {
  fail(ErrorKind::kInvalidArgument, "certificate: {} and {} are too large to be {}", a, b, what);
}

inline int64_t exact_sum(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) [[unlikely]]
    refuse_numbers(a, b, "added");
  return out;
}

inline int64_t exact_product(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) [[unlikely]]
    refuse_numbers(a, b, "multiplied");
  return out;
}

}  // namespace trireme
