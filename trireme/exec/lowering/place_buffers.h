// Where the buffers of a plan lie: an offset for each in its tier's arena, and the sizes of the arenas.
#pragma once

#include <vector>

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// Needs the buffers' bytes and lifetimes. The buffers of each group in `together` lie side by side in their order, and
// live as long as any of them. `external`: parameters and state lie elsewhere.
void place_buffers(ExecutionPlan& plan, const std::vector<std::vector<int>>& together, bool external);

}  // namespace trireme
