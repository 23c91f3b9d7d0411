// recursive_programming by communication alone (SearchCost::kCommunication), as MindSpore's SAPP ("double recursion")
// searches. The ranks are divided by one prime axis of the mesh after the other, in two as a rule. Each time every
// product is given the factor for which the fewest elements are exchanged, weighed by kind: within the product, and
// with products that read or made its values and have been given another dimension of these. No rates are needed. The
// data lies as it usually does, and all other ops follow (parallel/propagate/propagate.h).
#pragma once

#include "trireme/parallel/strategy/strategy.h"
#include "trireme/planner/search_conditions.h"

namespace trireme {

// Throws what candidates and propagate throw.
Strategy least_communication(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                             const SearchConditions& conditions);

}  // namespace trireme
