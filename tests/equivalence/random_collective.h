// What models that are cut by hand have besides other models: collectives among their ops, and inputs that are pieces.
#pragma once

#include <string>

#include "tests/equivalence/draw.h"
#include "trireme/ir/tensor.h"
#include "trireme/mesh/mesh.h"

namespace trireme::equivalence {

// What a random collective over some of the ranks makes of x, where it can be, of at most so many elements; else x.
Tensor random_collective(const Tensor& x, const Mesh& mesh, int64_t most_elements, Draw& draw);

// How the ranks' pieces of such an input lie (ir/graph.h, Input::piece).
std::string random_piece(const Shape& piece, const Mesh& mesh, Draw& draw);

}  // namespace trireme::equivalence
