// Partition: from a graph on whole tensors and a strategy to the program that every rank runs. Shapes become local,
// and where a node asks for another layout than its operand has, the reshard between the two is inserted right
// after the operand is made, once for all readers that ask alike.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/layout/reshard.h"
#include "trireme/plan/strategy.h"

namespace trireme {

struct PartitionOptions {
  ReshardCosts costs = {};
  // Values of the graph whose sums over ranks are taken in another type: a cast before and one after.
  std::map<ValueId, DType> sum_types = {};
};
Program partition(const Graph& graph, const Strategy& strategy, const PartitionOptions& options = {});

// Every program's own soundness: ops and types as in verify, local shapes equal to what the layouts give, and
// collectives that do what the layouts say. Empty when sound.
std::vector<std::string> verify(const Program& program);

// The graph's text with each value's layout.
std::string to_string(const Program& program);

}  // namespace trireme
