// What a strategy costs, term by term: for each node its work on the ranks' pieces, for each value what brings it to
// its readers. These terms are the entries of a search's tables. Their sum is the price of the program that partition
// makes of the strategy, to the picosecond, because both come from the same pieces (node_pieces.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/cost/price.h"
#include "trireme/op/call_kinds.h"
#include "trireme/op/structural.h"
#include "trireme/partition/partition.h"
#include "trireme/partition/reader_numbers.h"
#include "trireme/partition/value_planners.h"

namespace trireme {

// One node under some cuts. Windows of operands are not in the price where other readers may share them.
struct NodePrice {
  int64_t ps = 0;
  std::vector<std::pair<size_t, WindowAttrs>> windows;  // of which operand, each of the ones before it
};

struct StrategyPrice {
  std::vector<int64_t> nodes;   // of graph.nodes()
  std::vector<int64_t> values;  // of graph.values()
  std::vector<int64_t> means;   // of graph.outputs(), of those that are a mean over ranks
  int64_t total_ps() const;
};

class StrategyPricer {
 public:
  // Graph, options and model must outlive this. The model's mesh is the strategies'.
  StrategyPricer(const Graph& graph, const PartitionOptions& options, const CostModel& model);

  // The cuts must be legal.
  NodePrice node(NodeId node, const FactorCuts& cuts) const;
  int64_t value(ValueId value, const Layout& have, const std::vector<ValueReader>& readers);
  // Nothing where `allows` does not take the pieces that bring the value to its readers.
  std::optional<int64_t> value_if(ValueId value, const Layout& have, const std::vector<ValueReader>& readers,
                                  const std::function<bool(const Program&)>& allows);
  // Nodes and values that are alike are priced once.
  StrategyPrice price(const Strategy& strategy);
  // The type in which sums over ranks of the value are taken.
  DType sums_of(ValueId value) const;

 private:
  class Terms;

  int64_t mean(ValueId value, Layout have, const Axes& axes, const Layout& want);
  const ShardingRule& rule(NodeId node) const { return *rules_[static_cast<size_t>(node)]; }

  const Graph& graph_;
  const PartitionOptions& options_;
  const CostModel& model_;
  ValuePlanners planners_;
  std::vector<RuleOf> rules_;
  CallKinds kinds_;
  std::vector<int> kind_of_;  // of nodes
};

}  // namespace trireme
