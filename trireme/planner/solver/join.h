// The join of several tables: their sum for labels that go together, minimised over the variables that are not kept.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trireme/base/memo.h"
#include "trireme/planner/solver/weighted.h"

namespace trireme::solver {

// min over all variables that are not kept of the sum of the tables. `sizes` of all variables, by their numbers; `keep`
// ascending. Throws kUnsupported where the result
// would be too large.
Weighted join(std::span<const Weighted* const> tables, std::span<const int> keep, std::span<const int> sizes);

// Joins that are alike, of the same entries over variables that stand in the same order, are done once.
class Joins {
 public:
  // As the function of this name.
  Weighted join(std::span<const Weighted* const> tables, std::span<const int> keep, std::span<const int> sizes);
  void clear() { known_.clear(); }

 private:
  struct Known {
    std::vector<std::shared_ptr<const Entries>> from;  // which the key has the addresses of
    std::shared_ptr<const Entries> made;
  };
  Memo<Known> known_;
  MemoKey key_;
};

}  // namespace trireme::solver
