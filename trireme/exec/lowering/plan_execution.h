// From a program to its execution plan: actions (plan_actions.h), how long values are needed (value_uses.h), the buffer
// that each lies in, which is chosen here, and the buffers' offsets (place_buffers.h).
#pragma once

#include "trireme/exec/lowering/plan_options.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/ir/program.h"

namespace trireme {

// Chooses kernels, merges values into buffers (views, results written over operands, gradients of one
// collective side by side), and places the buffers.
ExecutionPlan plan_execution(const Program& program, const PlanOptions& options = {});

}  // namespace trireme
