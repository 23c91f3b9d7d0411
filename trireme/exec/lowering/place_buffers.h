// Where the buffers of a plan lie: an offset for each in its tier's arena, and the sizes of the arenas.
#pragma once

#include <vector>

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// Needs the buffers' bytes and lifetimes. Each group of `together` lies side by side in its order, and lives as long as
// any of it. `external`: parameters and state lie elsewhere.
void place_buffers(ExecutionPlan& plan, const std::vector<std::vector<int>>& together, bool external);

}  // namespace trireme
