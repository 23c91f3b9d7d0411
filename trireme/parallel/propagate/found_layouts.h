// The layout in which a node finds an operand: the one it is made in, or the one that somebody asks for. A node that is
// part of a gradient finds it as the node that it is the gradient of has it.
#pragma once

#include <optional>

#include "trireme/parallel/propagate/propagated.h"

namespace trireme {

// Nothing where the operand's layout is not known yet.
std::optional<Layout> found_by(const Propagated& known, const Node& node, ValueId operand);

// Puts chunks of positions before all else that a dimension is cut by: ranks share each chunk, and what they have of it
// lies side by side.
void chunks_first(const Propagated& known, std::vector<int>& axes);

}  // namespace trireme
