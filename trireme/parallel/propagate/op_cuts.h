// OpCuts: what a user's cuts (layout/cuts.h) mean for one op: the axes that cut each factor of its sharding rule. With
// numbers, a dimension of equal factors gets equal axes in every op: the last factor of the rule that is cut gets the
// least significant axes, and axes left over, over which the pieces are replicated, are the most significant ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/layout/cuts.h"
#include "trireme/op/sharding_rule.h"

namespace trireme {

struct OpCuts {
  FactorCuts cuts;
  std::vector<std::optional<Layout>> results;  // the layouts wanted instead of the op's own; empty: none is
};

// `copies`: the size of the reserved axis; 1: the mesh has none. Throws kInvalidArgument: another number of operands or
// dimensions, an operand whose cuts contradict another's, a dimension that the op's rule does not let be cut, sizes
// that do not divide, more parts than devices, unknown axes.
OpCuts op_cuts(const Cuts& cuts, const Graph& graph, const Node& node, const Mesh& mesh, int64_t copies = 1);

// The layouts of these values on the mesh. Throws kInvalidArgument where they do not fit; `what` names them in errors.
std::vector<Layout> layouts_of(const std::vector<NamedLayout>& layouts, const Graph& graph,
                               const std::vector<ValueId>& values, const Mesh& mesh, const std::string& what);

}  // namespace trireme
