// All choices of a problem that are within a window of the bound, as Pareto sets of time and bytes.
#pragma once

#include <optional>

#include "trireme/planner/solver/elimination.h"

namespace trireme::solver {

class LabelSearch {
 public:
  // Of a problem without runs. The multiplier prices bytes; its `time` is 1 or more.
  LabelSearch(const Problem& problem, Weights multiplier);

  struct Result {
    std::optional<Choice> choice;  // the least time within `bytes` that was found
    bool is_complete = true;       // false: there were more than `most_labels`
    int64_t labels = 0;
  };
  // If a choice within `bytes` takes `within_ps` or less, the result is a cheapest one.
  Result run(int64_t bytes, int64_t within_ps, int64_t most_labels);

 private:
  friend class LabelPass;
  void complete();

  const Problem& problem_;
  Weights multiplier_;
  Elimination inside_;
  std::vector<Weighted> outside_;  // of each bucket: the least weight of all that does not go through it
};

}  // namespace trireme::solver
