// The border between two steps. Ops on the host that nothing in their step waits for continue under the next step,
// which waits for each of them before an action that uses the same bytes, and at the latest before it starts the same
// op again. Whoever reads or writes persistent values between steps waits for all of them (Executor::settle).
#pragma once

#include <vector>

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

struct StepBorder {
  std::vector<int> left;  // actions that are under way when a step has ended, in their order
  // For each action, the positions in `left` of the ops of the previous step that it waits for, each once. Empty if
  // none is left running.
  std::vector<std::vector<int>> ends;
  std::vector<char> used;  // by value: whether it has bytes that these use. Empty where none is left
};

StepBorder step_border(const ExecutionPlan& plan);

}  // namespace trireme
