// sharding_propagation: goes breadth first from the ops whose cuts, and the inputs whose layouts, are asked for to
// their neighbours in both directions. Each op that it reaches is cut in the way that moves the fewest bytes to and
// from those that are already cut. Backward pass and updates follow (parallel/propagate/propagate.h).
#pragma once

#include "trireme/parallel/strategy/strategy.h"
#include "trireme/planner/search_conditions.h"

namespace trireme {

// The options' kind is not looked at. Throws what candidates and propagate throw.
Strategy sharding_propagation(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                              const SearchConditions& conditions);

}  // namespace trireme
