// Strategy: how a graph is cut. For every node a choice of mesh axes per factor of its sharding rule, and for every
// input and output of the graph a layout. It is data: it prints, parses back identical, and nothing after it decides
// a layout again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/layout/layout.h"
#include "trireme/mesh/mesh.h"
#include "trireme/op/sharding_rule.h"

namespace trireme {

struct Strategy {
  Mesh mesh;
  std::vector<Layout> inputs;     // of graph.inputs()
  std::vector<FactorCuts> nodes;  // of graph.nodes()
  std::vector<Layout> outputs;    // of graph.outputs()
};

// The sharding rule of a node on its whole types; nothing may be cut where the op has none.
ShardingRule rule_of(const Graph& graph, const Node& node);

// The layouts of all values that the strategy gives: what each node produces, before any reshard.
std::vector<Layout> value_layouts(const Graph& graph, const Strategy& strategy);

// Where the layouts of the inputs lead: each node takes the cuts its operands come with, as far as its rule allows;
// the largest operand wins a conflict. Partial sums flow on through linear ops and are reduced where
// something else reads them. Outputs that update an input get its layout, others are replicated.
Strategy propagate(const Graph& graph, const Mesh& mesh, std::vector<Layout> inputs);

// Data parallelism as a choice of layouts: dimension 0 of every data input is cut over all of the mesh's axis "dp",
// parameters, state and scalars are replicated. Throws kInvalidArgument when the batch does not divide, naming the
// batches that would.
Strategy data_parallel(const Graph& graph, int64_t ranks);

// One line an input, node and output: layouts in, the choice, layouts out.
std::string to_string(const Graph& graph, const Strategy& strategy);
// Reads what to_string wrote for this graph. Throws kInvalidArgument with the line's number.
Strategy parse_strategy(std::string_view text, const Graph& graph);

}  // namespace trireme
