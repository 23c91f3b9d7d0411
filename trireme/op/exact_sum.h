// The grids of exact_square_sum, for its op and its kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme {

inline constexpr int64_t kSumDigits = 12;
inline constexpr int kDigitBits = 18;
inline constexpr int kTopBit = 96;  // squares lie below 2^kTopBit
inline constexpr double kSumLimit = 0x1p96;
inline constexpr int64_t kMostExactTerms = int64_t{1} << 35;  // whose digits add up to at most 2^53 units

// The unit of a digit: 2^(kTopBit - 18 (digit + 1)).
constexpr double grid_unit(size_t digit) {
  double unit = kSumLimit;
  for (size_t i = 0; i <= digit; ++i) unit /= 1 << kDigitBits;
  return unit;
}

// x + grid - grid is x rounded to a multiple of the digit's unit: 1.5 x 2^52 units.
inline constexpr std::array<double, kSumDigits> kSumGrids = [] {
  std::array<double, kSumDigits> grids{};
  for (size_t digit = 0; digit < grids.size(); ++digit) grids[digit] = grid_unit(digit) * 0x1.8p52;
  return grids;
}();

}  // namespace trireme
