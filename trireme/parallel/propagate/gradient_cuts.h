// How the cut of a node that is part of a gradient follows from the node whose gradient it computes. It finds that
// node's operands and results as that node had them, and the results' gradients in the layouts that are dual to the
// results'. The graph records which values these are (Graph::is_gradient).
#pragma once

#include <optional>
#include <string>

#include "trireme/parallel/propagate/propagated.h"

namespace trireme {

// The layout in which it finds an operand, which is made in a layout that is known.
Layout found_by_gradient(const Propagated& known, const Node& node, ValueId operand);

// Whether the forward node's layouts are vouched for, and say how this one lies where that is possible.
bool is_of_vouched(const Propagated& known, const Node& node);
// If the layouts of the forward node are vouched for: the layouts of this node, which follow from them. Nothing if it
// need not follow. Throws kInvalidArgument if it must and cannot.
std::optional<VouchedLayouts> vouched_as_forward(const Propagated& known, const Node& node);

// What is computed in copies forward is so back, along the dimension that is that one's.
void copy_as_forward(const Propagated& known, const Node& node, const ShardingRule& rule, FactorCuts& cuts);

// " (it is part of the gradient of ...)", or "" of a node that is part of none.
std::string as_gradient(const Propagated& known, const Node& node);

}  // namespace trireme
