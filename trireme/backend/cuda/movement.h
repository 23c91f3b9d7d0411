// Elements moved between boxes of tensors on the GPU.
#pragma once

#include <array>

#include "trireme/backend/cuda/stream.h"
#include "trireme/tensor/shape.h"

namespace trireme::cuda {

// A box of a tensor to walk in row-major order: the element it starts at and the steps in each dimension.
struct Steps {
  int64_t first = 0;
  std::array<int64_t, Shape::kMaxRank> step{};
};

// Copies `size` elements; the two have one element type and do not overlap.
void move_elements(CudaStream& stream, const View& from, const Steps& from_steps, const View& to, const Steps& to_steps,
                   const Shape& size);

}  // namespace trireme::cuda
