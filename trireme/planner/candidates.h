// Candidates: the ways to run one op, and to lay one input, over some axes of a mesh beside those that it is cut by
// already. Every search chooses among these.
#pragma once

#include <functional>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/op/sharding_rule.h"

namespace trireme {

struct CandidateOptions {
  // Whether partial sums may flow through linear ops. They do so only where the results are no larger than the sums
  // are: else it is cheaper to take them before.
  bool sums_flow = true;
  std::function<bool(const Node&, const FactorCuts&)> allows = {};  // none: all are
};

// All legal ways to give each of these prime axes to a factor of the node's rule, to its ring, to the sums that flow
// through a linear set of operands, or to nothing. Parts are even. `cuts` itself, which must be legal, is the first.
std::vector<FactorCuts> candidates(const Graph& graph, NodeId node, const ShardingRule& rule, const FactorCuts& cuts,
                                   const std::vector<int>& axes, const Mesh& mesh,
                                   const CandidateOptions& options = {});

// The same for an input of this shape: each axis cuts a dimension in even parts, or none.
std::vector<Layout> candidates(const Shape& shape, const Layout& layout, const std::vector<int>& axes,
                               const Mesh& mesh);

// An op that is cut by nothing.
FactorCuts uncut(const ShardingRule& rule);

}  // namespace trireme
