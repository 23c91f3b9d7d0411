// Traffic: the bytes that a plan sends, known before it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

struct PlanTraffic {
  std::string op;    // "all_reduce", ..., "send"
  std::string axes;  // of the mesh that its groups lie along: "dp*tp"; "to crew 1"
  int64_t calls = 0;
  int64_t bytes = 0;  // sent by each rank in a step, as comm::World::Traffic counts them
};

// One entry for each op and axes that occur, in order of first occurrence. Where ranks send unlike amounts (the root of
// a broadcast, the windows of ranks at the edge), the most that any sends, or what the given one does.
inline constexpr int64_t kAnyRank = -1;
std::vector<PlanTraffic> traffic_per_step(const ExecutionPlan& plan, int64_t rank = kAnyRank);

}  // namespace trireme
