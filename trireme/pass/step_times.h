// When the ops of a program run, by the machine's rates: fuse_all_reduce chooses buckets by it, and `explain` shows it.
//
// Ops run one after the other, each for the longer of its arithmetic and its bytes. Sums over ranks run beside them,
// those over the same ranks one after the other. Every other collective is waited for where it stands.
#pragma once

#include <string>
#include <vector>

#include "trireme/cost/op_seconds.h"
#include "trireme/ir/program.h"
#include "trireme/pass/bucket_model.h"

namespace trireme {

// A sum over these ranks, by the bytes of the value.
BucketModel all_reduce_model(const Program& program, const Node& node, const ReshardCosts& links);

// When each node's operands are ready if nothing waits for a sum over ranks; one more: the end of the last.
std::vector<double> start_times(const Program& program, const Rates& rates);

struct AllReduceTime {
  NodeId node = -1;
  size_t members = 0;
  int64_t bytes = 0;
  double ready_s = 0, begin_s = 0, end_s = 0;
};
std::vector<AllReduceTime> all_reduce_times(const Program& program, const Rates& rates);

// The above as a table, and how much of the sums runs after the last op.
std::string all_reduce_table(const Program& program, const Rates& rates);

}  // namespace trireme
