// ValuePlanners: plan how a graph's values are brought from layout to layout.
#pragma once

#include <set>

#include "trireme/ir/graph.h"
#include "trireme/layout/reshard.h"

namespace trireme {

class ValuePlanners {
 public:
  // `summed_once`: values whose sums over ranks come after those over micro-batches, whatever the costs say
  // (PartitionOptions). It must outlive this. `memory`: of planners; null: their own.
  ValuePlanners(const Mesh& mesh, const ReshardCosts& costs, const std::set<ValueId>& summed_once,
                ReshardMemory* memory = nullptr)
      : summed_once_(summed_once), usual_(mesh, costs, memory), once_(mesh, added_first(costs), memory) {}

  ReshardPlanner& of(ValueId value) { return summed_once_.contains(value) ? once_ : usual_; }

 private:
  static ReshardCosts added_first(ReshardCosts costs) {
    costs.sum_micro_batches_late = false;
    return costs;
  }

  const std::set<ValueId>& summed_once_;
  ReshardPlanner usual_, once_;
};

}  // namespace trireme
