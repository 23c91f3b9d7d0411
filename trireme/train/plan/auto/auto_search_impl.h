// The searches of auto_plan, each with what it says of the plan that it finds.
#pragma once

#include <string>

#include "trireme/train/plan/plan_text.h"
#include "trireme/train/plan/ways/way_rule.h"

namespace trireme {

struct AutoFound {
  PlanFile file;
  std::string way, text;  // as of AutoPlan
};

// `kept`: what the request's job is to keep, for the text. Throw kInvalidArgument if nothing fits, saying what would.
AutoFound find_exactly(const PlanRequest& request, const WayRule& kept);
AutoFound find_by_compiling(const PlanRequest& request, const WayRule& kept);

}  // namespace trireme
