// Questions about a plan, each answered by planning again: why not a way that keeps a rule, and what the best way would
// be on a machine that is a little different.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/plan/plan_job.h"
#include "trireme/train/plan/ways/way_rule.h"

namespace trireme {

// The best way that keeps the rule beside the chosen one, term by term; or why none does. `kept` is planned with
// PlanRequest::is_asked of the rule.
std::string why_not_text(const JobPlan& chosen, const JobPlan& kept, const WayRule& rule);

struct Sensitivity {
  std::string what;  // "all links half as fast"
  JobPlan plan;
};

// Links, memory and arithmetic half and twice what they are. `plan` is that of the request. Throws kInvalidArgument
// where the job names no machine, whose figures could be changed.
std::vector<Sensitivity> sensitivities(const PlanRequest& request, const JobPlan& plan);
std::string sensitivities_text(const JobPlan& plan, const std::vector<Sensitivity>& all);

}  // namespace trireme
