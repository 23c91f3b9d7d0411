// Questions about a plan, each answered by planning again: why not a way that follows a rule, and what the best way
// would be on a slightly different machine. For both searches: ways that are compiled, and ways that follow from the
// prices of parts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/ways/way_rule.h"

namespace trireme {

// A way as it is compared with others.
struct ComparedWay {
  std::string text;
  double step_s = 0;
  std::vector<std::pair<std::string, double>> items;  // of the step, in seconds
  int64_t bytes = 0;                                  // of the fullest rank
};
ComparedWay compared(const PlannedWay& way);
ComparedWay compared(const ExactWay& way);
// The plan's best; nothing where none fits.
std::optional<ComparedWay> best_of(const JobPlan& plan);
std::optional<ComparedWay> best_of(const ExactPlan& plan);

// The best way that follows the rule beside the chosen one, item by item; or why there is none. `kept` is planned with
// the rule as PlanRequest::is_asked.
std::string why_not_text(const JobPlan& chosen, const JobPlan& kept, const WayRule& rule);
// Of the exact search with what was compiled of it: then ways are compared in virtual time, else by their tables.
struct ComparedPlan {
  const ExactPlan& plan;
  const std::optional<CompiledPlan>& compiled;
};
std::string why_not_text(const ComparedPlan& chosen, const ComparedPlan& kept, const WayRule& rule);

struct Sensitivity {
  std::string what;                 // "all links half as fast"
  std::optional<ComparedWay> best;  // nothing fits
};

// Machines with half or twice the link rates, half or twice the memory, and twice the arithmetic, each planned for by
// `plan_again`. `machine` and its memory are those of the plan. Throws kInvalidArgument if the job names no machine
// whose figures could be changed.
std::vector<Sensitivity> sensitivities(const PlanRequest& request, const Machine& machine, int64_t memory_bytes,
                                       const std::function<std::optional<ComparedWay>(const PlanRequest&)>& plan_again);
// Beside the plan's best.
std::string sensitivities_text(const std::optional<ComparedWay>& now, const std::vector<Sensitivity>& all);

}  // namespace trireme
