// When the ops of a program run, by the machine's rates. fuse_collectives chooses buckets by it, and `explain` prints
// it.
//
// Ops run one after the other, each for the time of its arithmetic or of its bytes, whichever is longer. Collectives
// that nothing waits for immediately run beside them, those over the same ranks one after the other: sums over ranks,
// including those of which a rank keeps a slice for the update; gathers of weights from their slices, and of updated
// weights. Every other collective is waited for at its place.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/cost/op_seconds.h"
#include "trireme/ir/program.h"
#include "trireme/pass/bucket_model.h"

namespace trireme {

// All-reduces, reduce-scatters or all-gathers over these ranks, by the bytes of the whole value.
BucketModel bucket_model(const Program& program, const Node& node, const Rates& rates);
// Bytes of the whole values of such a collective.
int64_t whole_bytes(const Program& program, const Node& node);

// When each node's operands are ready if nothing waits for what runs beside; one more: the end of the last.
std::vector<double> start_times(const Program& program, const Rates& rates);

// Of inputs that ops on the host update: when these have ended, from the begin of the next step on, under which they
// may go on. `starts`: as of start_times.
std::map<ValueId, double> seconds_until_updated(const Graph& graph, std::span<const double> starts,
                                                const Machine& machine);

// Of a collective that runs beside the ops.
struct BesideTime {
  NodeId node = -1;
  size_t members = 0;
  int64_t bytes = 0;  // of whole values
  double ready_s = 0, begin_s = 0, end_s = 0;
  double read_s = -1;  // when the first op that reads a result is ready but for that; -1: nothing does
};
struct StepTimes {
  std::vector<double> starts;  // as of start_times
  std::vector<BesideTime> beside;
};
StepTimes step_times(const Program& program, const Rates& rates);

// The above as a table, and how much of the sums runs after the last op.
std::string beside_table(const Program& program, const Rates& rates);

}  // namespace trireme
