// How many bytes the ops of a step read and write, and how few it could be: what fusion can still save.
#pragma once

#include "trireme/exec/plan/execution_plan.h"
#include "trireme/ir/program.h"

namespace trireme {

struct StepBytes {
  // What each op reads and writes as planned: its operands and results, or the parts of them that it touches, by its
  // cost function. What fused ops hand each other stays in the cache and does not count, nor does what passes between
  // ranks and between tiers of memory.
  double moved = 0;
  // If everything were fused as far as can be: parameters, state and batch are read once, what the step replaces or
  // gives out is written once, and what the backward pass reads of the forward pass is written once and read once.
  double least = 0;
};

// Of one rank. `plan` is the program's.
StepBytes step_bytes(const Program& program, const ExecutionPlan& plan);

}  // namespace trireme
