// The copies at the end of a step: outputs that replace inputs and were not computed in the inputs' place.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// From and to, in an order in which no copy overwrites what another still reads. `views` are those of the plan's
// values. Throws kUnsupported if there is no such order, and for copies to the disk.
std::vector<std::pair<View, View>> end_copies(const ExecutionPlan& plan, std::span<const View> views);

}  // namespace trireme
