// Where a plan waits for the messages that it has sent to other crews.
#pragma once

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// Nobody reads what a send makes: it has ended when the first action writes where its operand lies. That one waits for
// it from now on. The plan's buffers are placed.
void end_sends(ExecutionPlan& plan);

}  // namespace trireme
