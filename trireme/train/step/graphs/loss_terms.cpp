#include "trireme/train/step/graphs/loss_terms.h"

#include <algorithm>
#include <vector>

#include "trireme/parallel/strategy/strategy.h"

namespace trireme {
namespace {

// By value: whether the batch decides it.
std::vector<bool> values_of_batch(const Graph& graph) {
  std::vector<bool> out(graph.values().size());
  for (const Input& input : graph.inputs()) out[static_cast<size_t>(input.value)] = input.role == Role::kData;
  for (const Node& node : graph.nodes()) {
    const bool any = std::ranges::any_of(node.inputs, [&](ValueId in) { return out[static_cast<size_t>(in)]; });
    for (const ValueId result : node.outputs) out[static_cast<size_t>(result)] = any;
  }
  return out;
}

}  // namespace

// From the loss back over what is linear in the batch's part of it, to where a sum makes a scalar of values.
std::optional<NodeId> not_a_mean_of_parts(const Graph& evaluation) {
  // Counted losses are weighted by their count.
  if (std::ranges::any_of(evaluation.outputs(), [](const Output& out) { return out.name == "counted"; })) return {};
  const std::vector<bool> of_batch = values_of_batch(evaluation);
  std::vector<ValueId> scalars{evaluation.output("loss").value};
  for (size_t i = 0; i < scalars.size(); ++i) {
    const NodeId made_by = evaluation.value(scalars[i]).producer;
    if (made_by < 0 || !of_batch[static_cast<size_t>(scalars[i])]) continue;
    const Node& node = evaluation.nodes()[static_cast<size_t>(made_by)];
    std::vector<int> varied;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId in = node.inputs[k];
      if (!of_batch[static_cast<size_t>(in)]) continue;
      varied.push_back(static_cast<int>(k));
      if (evaluation.type(in).shape.rank() == 0 && std::ranges::find(scalars, in) == scalars.end())
        scalars.push_back(in);
    }
    const RuleOf rule = rule_of(evaluation, node);
    const bool is_linear = std::ranges::any_of(rule->linear, [&](const std::vector<int>& set) {
      return std::ranges::all_of(varied, [&](int k) { return std::ranges::find(set, k) != set.end(); });
    });
    if (!is_linear) return made_by;
  }
  return {};
}

}  // namespace trireme
