// Moving elements between boxes of two tensors: what the kernels of transpose, slice, concat and pad do.
#pragma once

#include <array>

#include "trireme/ops/elementwise/elementwise.h"

namespace trireme {

// A box of a tensor to walk in row-major order: the element it starts at and the steps in each
// dimension.
struct Walk {
  int64_t first = 0;
  std::array<int64_t, Shape::kMaxRank> step{};
};

// The box of a dense tensor whose first element has the coordinates `start`.
Walk walk_from(const Shape& tensor, const Shape& start);

// Copies `size` elements from one walk to another; the tensors have one element type.
void copy_box(const View& from, const Walk& from_walk, const View& to, const Walk& to_walk, const Shape& size);

// Shape of zeros.
Shape origin(int rank);

// `dim` counted from the start; throws kInvalidArgument when x has no such dimension.
int settle_dim(std::string_view op, const TensorType& x, int64_t dim);

}  // namespace trireme
