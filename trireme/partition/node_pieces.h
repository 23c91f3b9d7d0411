// One node of a graph, cut: the nodes of a program that compute it on the ranks' pieces, and those that bring a value
// into the layouts in which it is read. They depend only on the node, its cuts and its types, so a node can be priced
// by itself.
#pragma once

#include <functional>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/layout/deliveries.h"
#include "trireme/op/structural.h"
#include "trireme/partition/frames.h"

namespace trireme {

struct NodePieces {
  NodeId first = -1;             // that does the op's work
  std::vector<ValueId> results;  // as the cuts leave them
};

// The windows of a value that a node reads (WindowedDim), for those that others may have taken already.
using TakeWindows = std::function<ValueId(ValueId id, const WindowAttrs& attrs)>;

// How the newest value of the program lies, and as part of what.
void record(Program& program, ValueId id, const Layout& layout, const Shape& whole);

// `inputs` lie as the cuts ask; `whole` are the types of the results.
NodePieces add_node_pieces(Program& program, const CutNode& cut, std::vector<ValueId> inputs,
                           const std::vector<TensorType>& whole, const TakeWindows& take_windows);

// Windows of a value that every rank takes from its neighbours.
ValueId add_take_windows(Program& program, ValueId id, const WindowAttrs& attrs);

// What a delivery makes of the piece it begins with. Sums over ranks are taken in another type where `sums` is one.
ValueId add_delivery(Program& program, const Delivery& delivery, ValueId from, DType sums);

// The mean of a value over axes whose ranks have each their own, in this layout.
ValueId add_mean(Program& program, ValueId id, const Axes& axes, const Layout& want, ReshardPlanner& planner);

}  // namespace trireme
