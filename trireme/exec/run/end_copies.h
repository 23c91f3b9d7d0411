// The copies at the end of a step: outputs that replace inputs and were not computed in the inputs' place.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// From and to, in an order in which none overwrites what another still reads. `views` are of the plan's values. Throws
// kUnsupported where there is none, and for what would go to the disk.
std::vector<std::pair<View, View>> end_copies(const ExecutionPlan& plan, std::span<const View> views);

}  // namespace trireme
