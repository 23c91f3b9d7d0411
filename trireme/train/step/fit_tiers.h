// Homes under a budget: what leaves the device's memory such that a rank takes no more of each tier than it may.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/exec/plan.h"
#include "trireme/ir/program.h"
#include "trireme/pass/passes.h"
#include "trireme/plan/asked/tier_sizes.h"

namespace trireme {

// A program with moves, its plan, and what was chosen for them besides the rules that were given.
struct FittedHomes {
  Program program;
  ExecutionPlan plan;
  PassOptions passes;
  std::vector<std::string> chosen;  // "h.3/state = disk"
};

// `program` is one after all passes but `homes`; `plan_of` plans it. The fewest parts of the model leave that do, those
// first that are away longest for each byte that moves; of these, what is read soonest lies on the host, as far as that
// has room, and the rest on the disk, if sizes.disk is given. Where the plan fits without, nothing is chosen. Throws
// kInvalidArgument, with a size that fits, where no choice does.
FittedHomes fit_tiers(const Program& program, const PassOptions& passes, const TierSizes& sizes,
                      const std::function<ExecutionPlan(const Program&)>& plan_of);

}  // namespace trireme
