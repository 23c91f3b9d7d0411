// What a search for a strategy found (search.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/parallel/strategy/strategy.h"
#include "trireme/planner/solver/problem.h"

namespace trireme {

struct SearchResult {
  Strategy strategy;
  solver::Price price;  // of a step; bytes as SearchConditions::memory_bytes counts them
  // No strategy of the same candidates takes less; of the last axis, where they are taken in turn. 0: nothing is known.
  int64_t bound_ps = 0;
  // Of the price's time, what brings values to those that read them; nothing where the search did not add it up.
  std::optional<int64_t> moved_ps = {};
  std::vector<std::string> notes;  // what the search had to leave out, in words
  double seconds = 0;              // that the search took
};

}  // namespace trireme
