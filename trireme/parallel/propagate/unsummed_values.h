// Unsummed values: values that differ between the ranks of an axis although their layouts call them whole, because a
// sum over ranks is left out (cross_batch) or somebody vouches for layouts. What is computed from them differs between
// the ranks too, until something is cut by the axis. In the backward pass the gradients of such values are terms that
// also differ between the ranks. They are never summed over the axis on their way back to the op where this began; the
// gradients of what all ranks share, such as parameters, sum these terms.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

class UnsummedValues {
 public:
  // `asked`: nodes whose sums over ranks are not taken, and whether they are times the number of ranks
  // (Asks::unsummed).
  UnsummedValues(const Graph& graph, const Mesh& mesh, const std::map<NodeId, bool>& asked);

  // Changes what is chosen for a node to what it must be for the values it reads and makes. Nodes come in their order;
  // `made` has the layouts of values so far. Returns why it was changed, or "". Throws kInvalidArgument where what
  // ranks have of their own would be mixed.
  std::string settle(NodeId id, const ShardingRule& rule, const std::vector<std::optional<Layout>>& made,
                     FactorCuts& cuts);

  // The axes over which ranks have values of their own.
  const Axes& axes_of(ValueId id) const { return own_[static_cast<size_t>(id)]; }

 private:
  std::string settle_forward(NodeId id, const ShardingRule& rule, FactorCuts& cuts);
  std::string settle_backward(const Node& node, const ShardingRule& rule,
                              const std::vector<std::optional<Layout>>& made, FactorCuts& cuts);
  void cut_alike_what_is_made(const Node& node, const ShardingRule& rule, const Axes& axes, FactorCuts& cuts);
  // A dimension of an operand of the forward node.
  struct OperandDim {
    size_t operand = 0;
    size_t dim = 0;
  };
  std::vector<std::optional<OperandDim>> becomes(ValueId made, NodeId forward);
  Axes axes_of(std::span<const ValueId> values) const;
  int64_t parts_for(const Node& node, const Axes& axes) const;

  const Graph& graph_;
  const Mesh& mesh_;
  const std::map<NodeId, bool>& asked_;
  std::vector<Axes> own_;                         // per value
  std::vector<char> read_by_the_part_;            // per value: an op that says the batch's size reads it
  std::vector<std::vector<Layout>> operands_of_;  // of forward nodes
  std::vector<std::vector<NodeId>> readers_;      // per value; empty until it is asked
  std::map<NodeId, double> times_;                // what the terms of nodes that keep theirs are multiplied by
};

}  // namespace trireme
