// Where a plan waits for the messages that it has sent to other crews.
#pragma once

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// No action reads the result of a send, so a send need only have ended when an action overwrites its operand's bytes.
// The first action that does so is made to wait for it. The plan's buffers must have their places.
void end_sends(ExecutionPlan& plan);

}  // namespace trireme
