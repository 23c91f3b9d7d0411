// The layout in which a node finds an operand: the one in which it is made, or one that is asked for. A node that is
// part of a gradient finds an operand as the node whose gradient it computes had it.
#pragma once

#include <optional>

#include "trireme/parallel/propagate/propagated.h"

namespace trireme {

// Nothing where the operand's layout is not known yet.
std::optional<Layout> found_by(const Propagated& known, const Node& node, ValueId operand);

// The order of the axes that cut a dimension. Chunks of positions come before all else: ranks share each chunk, and
// what they have of it lies side by side. Micro-batches come before the axes that are within them.
void order_micro_batches(const Mesh& mesh, const Asks& asks, Axes& axes);

}  // namespace trireme
