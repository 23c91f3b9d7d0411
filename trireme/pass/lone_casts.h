// Values that the device reads only in a narrower type: they may be moved in that type (move_in_bf16).
#pragma once

#include <span>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/pass/rewrite.h"

namespace trireme {

// `readers`, if all of them cast the value to one narrower element type that a move can make; else none.
std::vector<NodeId> lone_casts(const Graph& graph, ValueId value, std::span<const NodeId> readers);

// Adds the move, from the host, whose result is that of these casts; they must not be added any more.
void bring_in_type_of(std::span<const NodeId> casts, const Graph& graph, Rewrite& rewrite);

}  // namespace trireme
