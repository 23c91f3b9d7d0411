// Strategy: how a graph is cut. For every node a choice of mesh axes per factor of its sharding rule, and for every
// input and output of the graph a layout. It is data: it prints, parses back identical, and nothing after it decides
// a layout again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/layout/layout.h"
#include "trireme/mesh/mesh.h"
#include "trireme/op/computed_rule.h"
#include "trireme/parallel/asked/stages.h"

namespace trireme {

// In a step with several micro-batches: which sum of a value is taken first, the one over ranks or the one over
// micro-batches.
struct SumOrder {
  // For values of which ranks keep slices: true if ranks sum each micro-batch's, false if they sum what each has
  // accumulated over all of them. Unset: as the job says (Communication::shard_accumulation).
  std::optional<bool> each;
  std::set<size_t> once = {};  // of inputs: parameters whose gradients are summed once a step, whatever `each` says
  friend bool operator==(const SumOrder&, const SumOrder&) = default;
};

struct Strategy {
  Mesh mesh;
  std::vector<Layout> inputs;     // of graph.inputs()
  std::vector<FactorCuts> nodes;  // of graph.nodes()
  std::vector<Layout> outputs;    // of graph.outputs()
  // Outputs, by index, of which ranks make values of their own, and the axes over which their mean is taken.
  std::map<size_t, Axes> means;
  ScopeStages stages;  // of a pipeline; empty: there is none
  SumOrder sums;
  // Who or what chose, of inputs and nodes, for people; the text form leaves it out, and so it may be empty.
  std::vector<std::string> why_inputs;
  std::vector<std::string> why_nodes;
};

// The parts that an input may be cut into: batches are read in equal ones.
inline Parts parts_of(const Input& input) {
  return input.role == Role::kData ? Parts::kEven : Parts::kUneven;
}

// The sharding rule of a node on its whole types; nothing may be cut where the op has none.
RuleOf rule_of(const Graph& graph, const Node& node);

// The gradients of the parameters that `sums.once` names.
std::set<ValueId> summed_once(const Graph& graph, const SumOrder& sums);

// The layouts of all values that the strategy gives: what each node produces, before any reshard.
std::vector<Layout> value_layouts(const Graph& graph, const Strategy& strategy);

// One line per input, node and output, read back by parallel/strategy/strategy_file.h.
std::string to_string(const Graph& graph, const Strategy& strategy);
// The same with hashes of the graph and of the model in it, by which a reader knows what it was written for.
std::string strategy_file(const Graph& graph, const Strategy& strategy);

// The mesh and the layouts of the parameters that the graph updates, and no more; everything else then follows from
// what is asked of the job that reads it.
std::string trained_parameters_to_string(const Graph& graph, const Strategy& strategy);

// Reads what to_string wrote for this graph. Throws kInvalidArgument with the line's number.
Strategy parse_strategy(std::string_view text, const Graph& graph);

}  // namespace trireme
