// How much shorter a plan's text becomes because equal collectives are written once (reuse.h).
#pragma once

#include <cstdint>

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// Bytes by which the plan's text is shorter than that of the same plan without calls.
int64_t bytes_saved_by_calls(const ExecutionPlan& plan);

}  // namespace trireme
