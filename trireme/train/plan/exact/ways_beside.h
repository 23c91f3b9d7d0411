// Ways beside those of the exact search: the compiled search has them (ways.h), and no table says what they take. A few
// of them are compiled, as that search does.
#pragma once

#include "trireme/train/plan/exact/exact_plan.h"

namespace trireme {

// What --auto finds; and micro-batches of more rows than tables have. `setting` is of a job over `ranks` ranks.
bool has_no_table(const Way& way, const ExactSetting& setting, int64_t ranks);

// Of the exact search's ways and, for so many ranks, of those beside them as many as a rule has to know to be read
// (way_rule.h).
std::vector<Way> example_ways(const ExactSetting& setting, const PlanRequest& request);

// Compiles those that may be faster than the plan's ways: what --auto finds, and the cuts of these with fewer
// micro-batches; as many as kMostPassesBeside allows, those first that take the least to compile. If nothing
// fits by the tables all are compiled, and for more ranks none.
JobPlan compile_beside(const ExactPlan& plan, const PlanRequest& request);

}  // namespace trireme
