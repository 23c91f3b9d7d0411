// A random optimizer's step at the end of a random graph: with or without clipping, updates of parameters and state.
#pragma once

#include <vector>

#include "tests/equivalence/draw.h"
#include "trireme/ir/tensor.h"
#include "trireme/mesh/mesh.h"
#include "trireme/op/numerics.h"

namespace trireme::equivalence {

constexpr int64_t kTableRows = 60;  // at least, of a table of which a batch looks up few

// `gradients` may be missing. mesh: of a graph that is cut by hand; else null.
void add_random_updates(Graph& graph, const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                        Numerics numerics, const Mesh* mesh, Draw& draw);

// Of the first `parameters` of `wrt` some may be frozen: they have no gradient, as if the loss did not depend on them.
std::vector<Tensor> gradients_of_trained(const Tensor& loss, const std::vector<Tensor>& wrt, size_t parameters,
                                         const Draw& draw);

// The input of this name that is fed each step.
Tensor schedule(Graph& graph, const std::string& name, DType dtype);

}  // namespace trireme::equivalence
