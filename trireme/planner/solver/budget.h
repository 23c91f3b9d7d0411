// The least time within a budget of bytes, exactly. This is the hard part of planning, since one sum of bytes ties all
// choices to each other.
//
// First the dual: bytes get a price, which is moved until choices on both sides of the budget cost the same (Kelley's
// cutting planes; few solves). It gives a lower bound, and choices that fit and are a few per cent above it. Then
// labels (partial choices with their time and bytes) are carried through the buckets. A label is dropped if another one
// is no worse in both, or if even its cheapest completion, at the dual's price of bytes, exceeds the bound by more than
// a window. The window widens until a choice within it is found: then nothing better exists (as in resource-constrained
// shortest paths: Handler and Zang, 1980).
#pragma once

#include <optional>

#include "trireme/planner/solver/problem.h"
#include "trireme/planner/solver/weighted.h"

namespace trireme::solver {

struct Budget {
  int64_t bytes = 0;
  double gap = 0;  // stop where the time is at most so much above the bound, as a share of it
  int64_t most_labels = int64_t{1} << 23;
};

struct Found {
  // The cheapest choice known that fits; where none does, a choice with the fewest bytes.
  Choice choice;
  bool fits = true;
  int64_t bound_ps = 0;  // nothing that fits takes less time
  Weights multiplier;    // of the dual that gave the first bound
  int solves = 0;        // eliminations
  int64_t labels = 0;    // of the last window

  bool is_optimal() const { return fits && choice.price.time_ps == bound_ps; }
};

// Throws what check() and Elimination::solve throw. Nothing where no labels go together at all.
std::optional<Found> cheapest_within(const Problem& problem, const Budget& budget);

// Without a budget.
std::optional<Choice> cheapest(const Problem& problem);

}  // namespace trireme::solver
