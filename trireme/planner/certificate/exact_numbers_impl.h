// Sums and products of a certificate's numbers, exactly or not at all.
#pragma once

#include <cstdint>

#include "trireme/base/error.h"

namespace trireme {

inline int64_t exact_sum(int64_t a, int64_t b) {
  int64_t out = 0;
  require(!__builtin_add_overflow(a, b, &out), "certificate: {} and {} are too large to be added", a, b);
  return out;
}

inline int64_t exact_product(int64_t a, int64_t b) {
  int64_t out = 0;
  require(!__builtin_mul_overflow(a, b, &out), "certificate: {} and {} are too large to be multiplied", a, b);
  return out;
}

}  // namespace trireme
