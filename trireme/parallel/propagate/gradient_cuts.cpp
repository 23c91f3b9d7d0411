#include "trireme/parallel/propagate/gradient_cuts.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/parallel/strategy/vouched.h"

namespace trireme {
namespace {

// Whether a node makes the gradient of an operand, and no step on the way to one.
bool gives_a_gradient(const Graph& graph, const Node& node, const Node& forward) {
  return std::any_of(forward.inputs.begin(), forward.inputs.end(), [&](ValueId of) {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return graph.is_gradient(id, of); });
  });
}

// Whether a node of the gradient of the same node makes it.
bool is_made_within(const Graph& graph, const Node& node, ValueId operand) {
  const NodeId producer = graph.value(operand).producer;
  return producer >= 0 && graph.node(producer).gradient_of == node.gradient_of;
}

// A gradient's layout from that of its value: the cuts are the value's; sums that are not done yet may flow on
// over axes that do not cut it.
Layout whole_where_partial(const Layout& value, const Layout& own) {
  Layout out = value;
  out.partial.clear();
  for (const PartialAxis& p : own.partial) {
    if (!out.uses(p.axis)) out.partial.push_back(p);
  }
  return out;
}

}  // namespace

Layout found_by_gradient(const Propagated& known, const Node& node, ValueId operand) {
  const Graph& graph = known.graph;
  const Layout& own = *known.layout(operand);
  const Node& forward = graph.node(node.gradient_of);
  const ShardingRule& rule = known.rule(node.gradient_of);
  const FactorCuts& cuts = known.chosen(node.gradient_of);
  for (size_t i = 0; i < forward.inputs.size(); ++i) {
    if (forward.inputs[i] == operand) return operand_layout(rule, cuts, i);
  }
  const auto as_result = [&](size_t i) { return whole_where_partial(result_layout(rule, cuts, i), own); };
  for (size_t i = 0; i < forward.outputs.size(); ++i) {
    if (forward.outputs[i] == operand) return as_result(i);
  }
  if (is_made_within(graph, node, operand)) return own;
  for (size_t i = 0; i < forward.outputs.size(); ++i) {
    // One that is wider than its value is rounded where it lies.
    const bool is_wide = graph.type(operand).dtype != graph.type(forward.outputs[i]).dtype;
    if (is_wide || !graph.is_gradient(operand, forward.outputs[i])) continue;
    // What ranks have of their own gets only what the rank's own part gives.
    return known.own.axes_of(forward.outputs[i]).empty() ? as_result(i) : own;
  }
  return own;
}

bool is_of_vouched(const Propagated& known, const Node& node) {
  if (node.gradient_of < 0) return false;
  const std::optional<VouchedLayouts>& layouts = known.chosen(node.gradient_of).vouched;
  return layouts && layouts->parts <= 1 && !known.asks.unsummed.contains(node.gradient_of);
}

std::optional<VouchedLayouts> vouched_as_forward(const Propagated& known, const Node& node) {
  if (!is_of_vouched(known, node)) return std::nullopt;
  const std::optional<VouchedLayouts>& layouts = known.chosen(node.gradient_of).vouched;
  const Node& forward = known.graph.node(node.gradient_of);
  std::vector<std::optional<Layout>> own;  // of what the same gradient makes
  for (const ValueId id : node.inputs) {
    own.push_back(is_made_within(known.graph, node, id) ? known.layout(id) : std::nullopt);
  }
  std::optional<VouchedLayouts> mine = mirrored(known.graph, node, own, *layouts, known.mesh());
  if (mine) return mine;
  require(!gives_a_gradient(known.graph, node, forward) || follows_rule(known.graph, forward, *layouts, known.mesh()),
          "self_define_shard of {}: {} of its gradient cannot be run on such pieces; cut the op as its rule allows, {}",
          known.name_of(forward), node.op->name, to_string(known.rule(node.gradient_of)));
  return std::nullopt;
}

void copy_as_forward(const Propagated& known, const Node& node, const ShardingRule& rule, FactorCuts& cuts) {
  const FactorCuts& asked = known.chosen(node.gradient_of);
  if (asked.copies <= 1) return;
  const Node& of = known.graph.node(node.gradient_of);
  const ShardingRule& forward = known.rule(node.gradient_of);
  const auto try_like = [&](size_t operand, const DimFactors& dims) {
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      const bool copied = std::find(dims[dim].begin(), dims[dim].end(), asked.copied_factor) != dims[dim].end();
      if (!copied || rule.in[operand][dim].size() != 1) continue;
      FactorCuts trial = cuts;
      trial.copied_factor = rule.in[operand][dim].front();
      trial.copies = asked.copies;
      if (why_illegal(rule, trial, known.mesh()).empty()) cuts = std::move(trial);
    }
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    for (size_t k = 0; k < of.inputs.size(); ++k) {
      if (node.inputs[i] == of.inputs[k]) try_like(i, forward.in[k]);
    }
    for (size_t k = 0; k < of.outputs.size(); ++k) {
      if (known.graph.is_gradient(node.inputs[i], of.outputs[k])) try_like(i, forward.out[k]);
    }
  }
}

std::string as_gradient(const Propagated& known, const Node& node) {
  if (node.gradient_of < 0) return "";
  const Node& forward = known.graph.node(node.gradient_of);
  return fmt::format(" (it is part of the gradient of {}, and follows it)", known.name_of(forward));
}

}  // namespace trireme
