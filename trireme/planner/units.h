// Unit: nodes of a graph that are cut together: a forward node and the nodes of its gradient, or one node that is
// neither. The cut of the first decides that of all (docs/decisions/0004), so a search chooses for units instead of
// nodes, and solves forward and backward as one problem.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/op/computed_rule.h"
#include "trireme/op/sharding_rule.h"
#include "trireme/planner/candidates.h"

namespace trireme {

class Units {
 public:
  // The graph must outlive this.
  explicit Units(const Graph& graph);

  size_t size() const { return nodes_.size(); }
  // In the order of the graph; the first is the one that the others follow.
  const std::vector<NodeId>& nodes(size_t unit) const { return nodes_[unit]; }

  // The cuts of the unit's nodes if the first is cut as `first` says, which must be legal. `sums_flow`: whether partial
  // sums may flow through linear ops.
  std::vector<FactorCuts> cuts(size_t unit, const FactorCuts& first, const Mesh& mesh, bool sums_flow) const;

  // Whether the options allow these cuts of all of the unit's nodes.
  bool allow(size_t unit, const FactorCuts& first, const Mesh& mesh, const CandidateOptions& options) const;

  // Numbers that say what the unit does: two units that have the same ones have the same cuts and do the same work.
  std::vector<uint64_t> kind(size_t unit) const;

  const ShardingRule& rule(NodeId node) const { return *rules_[static_cast<size_t>(node)]; }

 private:
  // What an operand of a node of a unit is to the unit.
  struct Source {
    enum class Kind { kOperand, kResult, kGradientOfResult, kWithin, kOther };
    Kind kind = Kind::kOther;
    size_t node = 0;   // kWithin: the unit's node that makes it
    size_t index = 0;  // of the operand or result
  };
  Source source(size_t unit, NodeId node, ValueId operand) const;

  const Graph& graph_;
  std::vector<RuleOf> rules_;  // of nodes
  std::vector<int> kinds_;     // of nodes: of their calls (op/call_kinds.h)
  std::vector<std::vector<NodeId>> nodes_;
};

}  // namespace trireme
