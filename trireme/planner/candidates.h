// Candidates: the ways to run one op, and to lay one input, over some axes of a mesh beside those that it is cut by
// already. Every search chooses among these.
#pragma once

#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/op/sharding_rule.h"

namespace trireme {

// All legal ways to give each of these prime axes to a factor of the rule, to its ring, to the sums that flow through a
// linear set of operands, or to nothing. Parts are even. `cuts` itself, which must be legal, is the first.
std::vector<FactorCuts> candidates(const ShardingRule& rule, const FactorCuts& cuts, const std::vector<int>& axes,
                                   const Mesh& mesh);

// The same for an input of this shape: each axis cuts a dimension in even parts, or none.
std::vector<Layout> candidates(const Shape& shape, const Layout& layout, const std::vector<int>& axes,
                               const Mesh& mesh);

// An op that is cut by nothing.
FactorCuts uncut(const ShardingRule& rule);

}  // namespace trireme
