// Propagation: turns what is asked about some tensors and ops into a strategy for all of them.
#pragma once

#include <vector>

#include "trireme/parallel/propagate/asks.h"
#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

// Nodes that nothing is asked of take the cuts their operands come with, as far as their rule allows; the largest
// operand wins a conflict. Partial sums flow on through linear ops whose results are no larger than the sums are, and
// are reduced where something else reads them.
//
// A node that is part of a gradient follows the node it is the gradient of: it finds that node's operands and results
// as that node had them, and the result's gradient in the layout that is dual to the result's: cut where the result
// is cut, whole where the result is a partial sum. (That pair per tensor is GSPMD's and Megatron-LM's conjugate
// operators f and g.) So the backward pass of an op is cut as its forward pass, and what the user asks of an op holds
// for both.
//
// Outputs that update an input get its layout, others are replicated.
Strategy propagate(const Graph& graph, const Mesh& mesh, Asks asks);
// With the layouts of all inputs given.
Strategy propagate(const Graph& graph, const Mesh& mesh, std::vector<Layout> inputs);

}  // namespace trireme
