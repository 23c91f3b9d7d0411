// Reverse-mode differentiation, graph to graph: adds the nodes that compute the derivatives of a scalar.
#pragma once

#include <span>
#include <vector>

#include "trireme/ir/tensor.h"

namespace trireme {

// d loss / d w for each w of `wrt`, in its shape; an empty Tensor where the loss does not depend on it. The nodes are
// added to the loss's graph, in the backward phase, with links to the nodes and values whose gradients they are
// (ir/graph.h), in the name scope of the node they differentiate with "grad/" before it. Where a value is used several
// times its gradients are added in the order of the uses, last use first. Throws kInvalidArgument when the loss is no
// scalar, kUnsupported when an op on the way has no gradient, with the op's own reason.
std::vector<Tensor> gradients(const Tensor& loss, std::span<const Tensor> wrt);

}  // namespace trireme
