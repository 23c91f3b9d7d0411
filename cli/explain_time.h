// The modelled step of a job's plans as text: `trireme explain --stage time` and `trireme simulate`.
#pragma once

#include <string>
#include <vector>

#include "trireme/cost/op_seconds.h"
#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/exec/plan/execution_plan.h"

namespace trireme::cli {

// Ranks that are not like the others, as --slow 3=1.5 and --late 3=0.002 name them.
struct UnlikeRanks {
  std::vector<std::string> slow;  // "3=1.5": rank 3 computes for 1.5 times as long
  std::vector<std::string> late;  // "3=0.002": rank 3 begins 2 ms after the others
  bool given() const { return !slow.empty() || !late.empty(); }
};

using CrewPlans = std::vector<const ExecutionPlan*>;  // of all crews

// Throws kInvalidArgument for a rank that there is not.
VirtualTime modelled_step(const CrewPlans& crews, const Rates& rates, const UnlikeRanks& unlike);
// With `by_rank` a line for each rank.
std::string time_text(const CrewPlans& crews, const Rates& rates, const VirtualTime& time, bool by_rank);
// A trace of the first rank of each crew (train/report/trace.h) to the file.
void write_trace(const CrewPlans& crews, const VirtualTime& time, const std::string& path);

}  // namespace trireme::cli
