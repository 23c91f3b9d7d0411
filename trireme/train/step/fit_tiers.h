// Homes under a budget: what leaves the device's memory such that a rank takes no more of each tier than it may.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/exec/plan/execution_plan.h"
#include "trireme/ir/program.h"
#include "trireme/parallel/asked/tier_sizes.h"
#include "trireme/pass/home_candidates.h"
#include "trireme/pass/passes.h"

namespace trireme {

// A program with moves, its plan, and what was chosen for them besides the rules that were given.
struct FittedHomes {
  Program program;
  ExecutionPlan plan;
  PassOptions passes;
  std::vector<ChosenRule> chosen;  // in the order in which they count
};

struct WaysToPlan {
  std::function<Program(const PassOptions&)> program_of;  // after all passes before `updates_in_parts`
  std::function<ExecutionPlan(const Program&)> plan_of;
};

// The fewest parts of the model leave that do, those first that are away longest for each byte that moves; of these,
// what is read soonest lies on the host, as far as that has room, and the rest on the disk, if sizes.disk is given;
// what is kept for the backward pass is computed again instead, where that takes less than waiting for it. Where the
// plan fits without, nothing is chosen. Throws kInvalidArgument, with a size that fits, where no choice does.
FittedHomes fit_tiers(const PassOptions& passes, const TierSizes& sizes, const WaysToPlan& ways);

}  // namespace trireme
