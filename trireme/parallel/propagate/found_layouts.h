// The layout in which a node finds an operand: the one it is made in, or the one that somebody asks for. A node that is
// part of a gradient finds it as the node that it is the gradient of has it.
#pragma once

#include <optional>

#include "trireme/parallel/propagate/propagated.h"

namespace trireme {

// Nothing where the operand's layout is not known yet.
std::optional<Layout> found_by(const Propagated& known, const Node& node, ValueId operand);

// The order of the axes that cut a dimension. Chunks of positions come before all else: ranks share each chunk, and
// what they have of it lies side by side. Micro-batches come before the axes that are within them.
void order_micro_batches(const Mesh& mesh, const Asks& asks, std::vector<int>& axes);

}  // namespace trireme
