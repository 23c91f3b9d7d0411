// The worst of many differences, which keeps what is no number: std::max(worst, NaN) is `worst`, and a test that takes
// it so passes on results that are no numbers.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

namespace trireme::testing_support {

// The larger of the two, and no number where either is none: EXPECT_LE and EXPECT_LT fail then, whatever the bound.
inline double worse(double worst, double found) {
  return found <= worst || std::isnan(worst) ? worst : found;
}

// The largest |element|.
double largest_of(const auto& elements) {
  double out = 0;
  for (const auto x : elements) out = worse(out, std::fabs(static_cast<double>(x)));
  return out;
}

// The largest |got - want|, element by element; no number where they differ in length.
double worst_difference(const auto& got, const auto& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::quiet_NaN();
  double out = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    out = worse(out, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  return out;
}

}  // namespace trireme::testing_support
