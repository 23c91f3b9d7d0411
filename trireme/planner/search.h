// Searches for a strategy: no cut is given, all are found. What they minimise is the price of the step (cost/price.h)
// on a mesh that is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trireme/cost/op_seconds.h"
#include "trireme/partition/partition.h"
#include "trireme/plan/search/budget.h"

namespace trireme {

enum class SearchKind {
  kDynamicProgramming,    // all axes of the mesh at once, exactly; for few axes
  kRecursiveProgramming,  // one prime axis after the other, each exactly, those of the slowest links first
};

struct SearchOptions {
  SearchKind kind = SearchKind::kRecursiveProgramming;
  // Of parameters, state and what the backward pass reads, on each device; 0: no limit.
  int64_t memory_bytes = 0;
};

struct SearchResult {
  Strategy strategy;
  search::Price price;  // of a step; bytes as SearchOptions::memory_bytes counts them
  int64_t bound_ps =
      0;  // no strategy of the same candidates takes less; of the last axis, where they are taken in turn
};

// Throws kInvalidArgument where no strategy fits in the memory, saying how much the smallest needs, and kUnsupported
// where the choices depend on each other in too many ways (strategy_problem.h, plan/search/join.h).
SearchResult search_strategy(const Graph& graph, const Mesh& mesh, const PartitionOptions& partition,
                             const Rates& rates, const SearchOptions& options = {});

}  // namespace trireme
