// ValuePlanners: by what a graph's values are brought from layout to layout (PartitionOptions).
#pragma once

#include "trireme/partition/partition.h"

namespace trireme {

class ValuePlanners {
 public:
  // The options must outlive this.
  ValuePlanners(const Mesh& mesh, const PartitionOptions& options)
      : options_(options), usual_(mesh, options.costs), once_(mesh, summed_once(options.costs)) {}

  ReshardPlanner& of(ValueId value) { return options_.summed_once.contains(value) ? once_ : usual_; }

 private:
  static ReshardCosts summed_once(ReshardCosts costs) {
    costs.sum_micro_batches_late = false;
    return costs;
  }

  const PartitionOptions& options_;
  ReshardPlanner usual_, once_;
};

}  // namespace trireme
