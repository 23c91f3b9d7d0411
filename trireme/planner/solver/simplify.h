// A smaller problem with the same best prices, for any budget of bytes. Three things are done until none changes
// anything more:
//   rows that another row with the same labels beats or equals in both time and bytes go; so do labels without a row
//   in some table (arc consistency);
//   a label goes where another label of the variable can stand in for it everywhere and costs no more (dominance, or
//   neighbourhood substitution: Freuder, 1991);
//   two variables of which each determines the other become one, such as a tensor and what an elementwise op makes
//   of it.
#pragma once

#include <memory>

#include "trireme/planner/solver/problem.h"

namespace trireme::solver {

// One problem without runs, or a block, made smaller.
struct Smaller {
  std::vector<int> variable;                // of each of the original's: its number now
  std::vector<std::vector<int32_t>> label;  // of each of the original's, by the label of that number now
  std::vector<std::shared_ptr<const std::vector<int32_t>>> row;  // of each table, by its row now
};

struct Simplified {
  Problem problem;
  Smaller whole;
  std::vector<Smaller> blocks;  // of each run

  // The choice in the problem that was simplified.
  Choice restored(const Choice& choice) const;
};

// The problem must have passed check(). Ends of runs keep all their labels.
Simplified simplify(const Problem& problem);

}  // namespace trireme::solver
