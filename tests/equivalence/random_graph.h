// Random graphs over the whole op set: chains and blocks with shared parameters, their gradients,
// and some steps of an optimizer.
//
// The values of the inputs are told by their names: "ids3.below7" holds whole numbers from 0 to 6,
// "step" counts from 1, "lr" is the learning rate, and every other is drawn from [-1, 1). So a
// graph's text says all about it.
#pragma once

#include "tests/equivalence/draw.h"
#include "trireme/ir/graph.h"
#include "trireme/mesh/mesh.h"
#include "trireme/op/numerics.h"

namespace trireme::equivalence {

// Floating values are all f32, or all f64, or are computed in bf16 from inputs in f32. Where bits must not depend on
// the cuts they are mostly f32, for whose sums there are kernels, and the norm of all gradients is exact.
Graph random_graph(Draw& draw, Numerics numerics = Numerics::kFast);

// Of a model that is cut by hand over this mesh: what each rank runs, with collectives among its ops, and inputs that
// are the same on all ranks, pieces, or each rank's own.
Graph random_graph_by_hand(Draw& draw, const Mesh& mesh);

}  // namespace trireme::equivalence
