// What the attributes that a user gives to an op (parallel/asked/asked.h) mean for propagation.
#pragma once

#include "trireme/parallel/asked/asked.h"
#include "trireme/parallel/propagate/propagate.h"

namespace trireme {

// Adds to the asks. Throws kInvalidArgument when the node cannot have the attribute.
void ask_attribute(const OpAttribute& attribute, const Graph& graph, NodeId id, const Mesh& mesh, Asks& asks);

}  // namespace trireme
