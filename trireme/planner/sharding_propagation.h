// sharding_propagation: from the ops whose cuts are asked for, and the inputs whose layouts are, to their neighbours in
// both directions, breadth first. Each op that is reached is cut in the way that moves the fewest bytes to and from
// those that are cut already. Backward and update follow (parallel/propagate/propagate.h).
#pragma once

#include "trireme/parallel/strategy/strategy.h"
#include "trireme/planner/search_conditions.h"

namespace trireme {

// The options' kind is not looked at. Throws what candidates and propagate throw.
Strategy sharding_propagation(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                              const SearchConditions& conditions);

}  // namespace trireme
