// Partition: from a graph on whole tensors and a strategy to the program that every rank runs. Shapes become local. If
// a node asks for another layout than its operand has, the reshard between the two is inserted right after the operand
// is made, once for all readers that ask for the same.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/layout/reshard.h"
#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

struct PartitionOptions {
  ReshardCosts costs = {};
  // Values of the graph whose sums over ranks are taken in another type: a cast before and one after.
  std::map<ValueId, DType> sum_types = {};
  // Values whose sums over ranks are taken once a step, of what each rank has accumulated over all micro-batches, even
  // if costs.sum_micro_batches_late is set.
  std::set<ValueId> summed_once = {};
  ReshardMemory* reshards = nullptr;  // of other graphs' partitions; null: none
};
Program partition(const Graph& graph, const Strategy& strategy, const PartitionOptions& options = {});

// Every program's own soundness: ops and types as in verify, local shapes equal to what the layouts give, and
// collectives that do what the layouts say. Empty when sound.
std::vector<std::string> verify(const Program& program);

// The graph's text, and after "//" how each value of a line lies; whom a collective joins is told as well.
//   mesh "dp=2" micro_batches 4
//   %3: f32[4,8] = matmul(%0, %1) {...}  // [dp, -] of [8,8] part 1 of [dp.0*micro_batch, -] of [32,8]
//   %5: f32[4], %6: f32[4,8] = split(%4) {...}  // [-] of [4] | [-, -] of [4,8]
std::string to_string(const Program& program);
// Reads that back. A value without a layout is whole on every rank. Throws kInvalidArgument with the line's number.
// Whether the program is sound is for verify to say.
Program parse_program(std::string_view text);

}  // namespace trireme
