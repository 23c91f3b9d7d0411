// A value brought to a shape, so that a random graph can go on from any value it has.
#pragma once

#include "tests/equivalence/draw.h"
#include "trireme/ir/tensor.h"

namespace trireme::equivalence {

// x by random ops that give it this shape: reshaped, repeated, averaged, sliced or padded.
Tensor with_shape(const Tensor& x, const Shape& shape, Draw& draw);

}  // namespace trireme::equivalence
