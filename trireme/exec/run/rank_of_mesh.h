// Which rank of a plan's mesh runs it.
#pragma once

#include <cstdint>

#include "trireme/comm/comm.h"
#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// This rank's number in the mesh; null: there is one rank. Throws kInvalidArgument where the plan is for other ranks.
int64_t rank_of_mesh(const ExecutionPlan& plan, comm::World* world);

}  // namespace trireme
