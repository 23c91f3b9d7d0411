// The modelled step of a job's plans as text: `trireme explain --stage time`.
#pragma once

#include <string>
#include <vector>

#include "trireme/cost/op_seconds.h"
#include "trireme/exec/plan.h"

namespace trireme::cli {

// Ranks that are not like the others, as --slow 3=1.5 and --late 3=0.002 name them.
struct UnlikeRanks {
  std::vector<std::string> slow;  // "3=1.5": rank 3 computes for 1.5 times as long
  std::vector<std::string> late;  // "3=0.002": rank 3 begins 2 ms after the others
  bool given() const { return !slow.empty() || !late.empty(); }
};

// Of the plans of all crews. `trace`: file for a trace of the first rank of each crew (train/report/trace.h); "": none.
std::string time_text(const std::vector<const ExecutionPlan*>& crews, const Rates& rates, const UnlikeRanks& unlike,
                      const std::string& trace);

}  // namespace trireme::cli
