// The bound of what a tensor may hold.
#pragma once

#include <cstdint>

namespace trireme {

// Elements of a shape, and positions along a dimension: so that bytes fit 64 bits for every element type.
inline constexpr int64_t kMostElements = int64_t{1} << 58;

}  // namespace trireme
