// The largest number of elements that a tensor may have.
#pragma once

#include <cstdint>

namespace trireme {

// For the elements of a shape and the positions along a dimension; bytes then fit 64 bits for every element type.
inline constexpr int64_t kMostElements = int64_t{1} << 58;

}  // namespace trireme
