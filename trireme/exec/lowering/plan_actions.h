// The actions of a plan, one for each node of its program: its lane, its kernel, and the actions that must come before
// it. No value has a buffer yet (value_uses.h, plan_execution.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/exec/lowering/plan_options.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/op/call_kinds.h"

namespace trireme {

struct PlannedActions {
  std::vector<Action> actions;         // of the graph's nodes, in their order; without scratch
  std::vector<int64_t> scratch_bytes;  // of actions
  std::vector<int> maker;              // of values: the action that makes it; -1: it is an input
  std::vector<Tier> home;              // of inputs: the tier in which moves and ops on the host find it
  CallKinds kinds;
  std::vector<int> kind_of;  // of actions
};

// `device`: whose kernels run what is not on the host.
PlannedActions plan_actions(const Program& program, const PlanOptions& options, const Device& device);

}  // namespace trireme
