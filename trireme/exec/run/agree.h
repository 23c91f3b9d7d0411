// Checks that all ranks have planned the same step.
#pragma once

#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// The hash of the plans of all crews agreed by all ranks of the world before anything runs; throws kInvalidArgument
// naming the ranks that differ and the first line of the plans that does.
void agree(const std::vector<const ExecutionPlan*>& crews, comm::World& world);

}  // namespace trireme
