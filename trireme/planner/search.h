// Searches for a strategy: they find all cuts that the user does not ask for. They minimise the price of the step
// (cost/price.h) on a given mesh, unless they are asked to go by communication alone (SearchCost).
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/error.h"
#include "trireme/planner/search_conditions.h"
#include "trireme/planner/search_result.h"

namespace trireme {

// What a step takes by a strategy that a search found or that was made of one.
struct StepPrice {
  solver::Price price;
  int64_t moved_ps = 0;  // of its time, what brings values to those that read them
};
StepPrice price_of(const Graph& graph, const Strategy& strategy, const SearchConditions& conditions);

// The choices depend on each other in too many ways even for one axis (strategy_problem.h, planner/solver/join.h).
struct TooManyChoices : Error {
  explicit TooManyChoices(const std::string& why) : Error(ErrorKind::kUnsupported, why) {}
};

// Throws kInvalidArgument if no strategy fits in the memory, saying how much the smallest needs; kUnsupported if
// searches do not follow something that is asked for; and TooManyChoices, except for sharding_propagation.
SearchResult search_strategy(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                             const SearchConditions& conditions);

}  // namespace trireme
