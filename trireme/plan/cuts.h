// Cuts: the text by which a user cuts one op. It has two forms, both of which become the axes that cut each factor of
// the op's sharding rule:
//   {{4, 2}, {2, 1}}             for each operand the number of parts of each dimension
//   [dp, tp], [tp, -]            for each operand a layout by the mesh's axes (layout.h)
// A scalar operand is {} or []. They may be followed by "->" and the same for the results, where a result is wanted in
// a different layout from the one in which the op leaves it: "-> [dp*tp, -]" turns a partial sum into a reduce-scatter.
// The reserved axis "interleaved_parallel" of the mesh, last in a dimension ("[dp*interleaved_parallel, -]"), cuts it
// no further over ranks: each rank computes its piece in that many copies, part by part. With numbers, a dimension of
// equal factors gets equal axes in every op: the last factor of the rule that is cut gets the least significant axes,
// and axes left over, over which the pieces are replicated, are the most significant ones.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/op/sharding_rule.h"

namespace trireme {

struct OpCuts {
  FactorCuts cuts;
  std::vector<std::optional<Layout>> results;  // the layouts wanted instead of the op's own; empty: none is
};

inline constexpr std::string_view kInterleavedAxis = "interleaved_parallel";

// `copies`: the size of the reserved axis; 1: the mesh has none. Throws kInvalidArgument: another number of operands or
// dimensions, an operand whose cuts contradict another's, a dimension that the op's rule does not let be cut, sizes
// that do not divide, more parts than devices, unknown axes.
OpCuts parse_cuts(std::string_view text, const Graph& graph, const Node& node, const Mesh& mesh, int64_t copies = 1);

// "[dp, -], [-, tp]": a layout for each of the values. `what` names them in errors.
std::vector<Layout> parse_layouts(std::string_view text, const Graph& graph, const std::vector<ValueId>& values,
                                  const Mesh& mesh, const std::string& what);

// The number of dimensions of each operand that the text speaks of.
std::vector<int> ranks_of_cuts(std::string_view text);

// "{{4, 1}, {4}}": a list of numbers of parts, each from 1, for each of several tensors.
std::vector<std::vector<int64_t>> parse_numbers(std::string_view text);

}  // namespace trireme
