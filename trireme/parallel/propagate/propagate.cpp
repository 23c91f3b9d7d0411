#include "trireme/parallel/propagate/propagate.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/said.h"
#include "trireme/op/op_def.h"
#include "trireme/op/structural.h"
#include "trireme/parallel/propagate/first_readers.h"
#include "trireme/parallel/propagate/found_layouts.h"
#include "trireme/parallel/propagate/gradient_cuts.h"
#include "trireme/parallel/propagate/node_choice.h"
#include "trireme/parallel/propagate/propagated.h"
#include "trireme/parallel/strategy/vouched.h"

namespace trireme {
namespace {

struct Choice {
  FactorCuts cuts;
  std::string why;
};

// The inputs of which a layout is asked are as asked.
void place_inputs(Propagated& known) {
  for (size_t i = 0; i < known.graph.inputs().size(); ++i) {
    const Input& input = known.graph.inputs()[i];
    const std::optional<Layout>& asked = known.asks.inputs[i];
    if (!asked) continue;
    check(*asked, known.graph.type(input.value).shape, known.mesh(), input.name, parts_of(input));
    known.layouts[static_cast<size_t>(input.value)] = asked;
    known.strategy.why_inputs[i] = "asked for";
  }
}

// What is asked of a node says how ranks share it. Its part of the batch comes in micro-batches all the same.
FactorCuts as_asked(const Propagated& known, const Node& node, const ShardingRule& rule, const FactorCuts& asked) {
  if (micro_batches(known.mesh()) == 1 || asked.vouched) return asked;
  std::vector<std::optional<Layout>> have;
  for (const ValueId operand : node.inputs) have.push_back(found_by(known, node, operand));
  for (std::optional<Layout>& layout : have) {
    if (!layout) continue;
    layout->partial.clear();
    for (Axes& axes : layout->dims) {
      erase_if(axes, [&](int axis) { return !is_micro_batch_axis(known.mesh(), axis); });
    }
  }
  FactorCuts out = NodeChoice(rule, have, known.mesh()).extend(asked);
  for (Axes& axes : out.axes) order_micro_batches(known.mesh(), known.asks, axes);
  return out;
}

// Where the rule would have an operand brought to another layout, it stays as it comes.
void take_as_it_comes(const Propagated& known, const Node& node, const ShardingRule& rule,
                      const std::vector<std::optional<Layout>>& have, const std::vector<Layout>& results,
                      Choice& choice) {
  VouchedLayouts layouts;
  for (size_t i = 0; i < have.size(); ++i) {
    layouts.in.push_back(have[i] ? *have[i] : Layout::replicated(known.graph.type(node.inputs[i]).shape.rank()));
    layouts.in.back().partial.clear();
  }
  const bool fits_rule = results.empty() && operand_layouts(rule, choice.cuts) == layouts.in;
  if (fits_rule || layouts.in.empty()) return;
  layouts.out = results;
  if (results.empty()) {
    for (const ValueId id : node.outputs) {
      layouts.out.push_back(cut_alike(layouts.in[0], known.graph.type(id).shape, known.mesh()));
    }
  }
  const std::string why = why_unsound(known.graph, node, layouts, known.mesh());
  require(why.empty(),
          "skip_redistribution of {}: its operand comes as {}: {}; say the result's layout after '->', or leave it out",
          known.name_of(node), said_by([&] { return to_string(layouts.in[0], known.mesh()); }), why);
  choice.cuts.vouched = std::move(layouts);
  choice.why = "vouched for: skip_redistribution";
}

void end_sums_over_micro_batches(std::vector<std::optional<Layout>>& layouts, const Mesh& mesh) {
  for (std::optional<Layout>& layout : layouts) {
    if (layout) erase_if(layout->partial, [&](const PartialAxis& p) { return is_micro_batch_axis(mesh, p.axis); });
  }
}

// Whether terms of micro-batches flow through a node for which chunks of positions are put together: they would be for
// each micro-batch, after the passes of all.
bool gathers_terms(const Propagated& known, const Node& node, const ShardingRule& rule, const FactorCuts& cuts) {
  const auto is_ours = [&](int axis) { return is_micro_batch_axis(known.mesh(), axis); };
  if (std::ranges::none_of(cuts.through, is_ours, &PartialAxis::axis)) return false;
  const Axes chunks = seq_chunk_axes(known.mesh());
  const std::vector<Layout> needed = operand_layouts(rule, cuts);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const std::optional<Layout>& made = known.layout(node.inputs[i]);
    const auto is_gathered = [&](int axis) { return made->dim_cut_by(axis) >= 0 && !needed[i].uses(axis); };
    if (made && std::ranges::any_of(chunks, is_gathered)) return true;
  }
  return false;
}

// The cuts that the operands come with, or those of the node it is part of the gradient of.
Choice follow_operands(const Propagated& known, NodeId id, const ShardingRule& rule) {
  const Node& node = known.graph.node(id);
  Choice out;
  if (node.gradient_of >= 0) {
    if (std::optional<VouchedLayouts> vouched = vouched_as_forward(known, node)) {
      out.cuts.axes.resize(rule.factors.size());
      out.cuts.vouched = std::move(vouched);
      out.why = "vouched for" + as_gradient(known, node);
      return out;
    }
  }
  std::vector<std::optional<Layout>> have;
  std::vector<int64_t> bytes;
  for (const ValueId operand : node.inputs) {
    have.push_back(found_by(known, node, operand));
    bytes.push_back(known.graph.type(operand).bytes());
  }
  int64_t result_bytes = 0;
  for (const ValueId result : node.outputs) result_bytes += known.graph.type(result).bytes();
  if (known.asks.across_stages.contains(id)) end_sums_over_micro_batches(have, known.mesh());
  const auto choose_from = [&] {
    NodeChoice choice(rule, have, known.mesh());
    out.cuts = choice.choose(bytes, result_bytes, known.asks.sums_flow, node.phase == Phase::kUpdate);
    if (known.asks.says_why) out.why = choice.why() + as_gradient(known, node);
  };
  choose_from();
  if (gathers_terms(known, node, rule, out.cuts)) {
    end_sums_over_micro_batches(have, known.mesh());
    choose_from();
  }
  if (is_of_vouched(known, node))
    out.why += "; not by the layouts that are vouched for, which do not fit this step of it";
  if (const auto skip = known.asks.as_it_comes.find(id); skip != known.asks.as_it_comes.end()) {
    take_as_it_comes(known, node, rule, have, skip->second, out);
  }
  if (node.gradient_of >= 0) copy_as_forward(known, node, rule, out.cuts);
  return out;
}

void choose(Propagated& known, NodeId id) {
  const Node& node = known.graph.node(id);
  known.rules.push_back(rule_of(known.graph, node));
  const ShardingRule& rule = *known.rules.back();
  const auto asked = known.asks.nodes.find(id);
  // A cast of what is not known yet is cut as the first op that reads it has it: settle_inputs.
  const bool waits = asked == known.asks.nodes.end() && is_cast(node) && !known.layout(node.inputs[0]);
  Choice choice;
  if (asked != known.asks.nodes.end()) {
    choice = {as_asked(known, node, rule, asked->second), "asked for"};
  } else if (waits) {
    choice.cuts.axes.resize(rule.factors.size());
    choice.why = "nothing reads it cut";
  } else {
    choice = follow_operands(known, id, rule);
  }
  known.strategy.nodes.push_back(std::move(choice.cuts));
  known.strategy.why_nodes.push_back(std::move(choice.why));
  if (waits) return;
  settle_inputs(known, node);
  known.strategy.why_nodes.back() += known.own.settle(id, rule, known.layouts, known.strategy.nodes.back());
  for (size_t i = 0; i < node.outputs.size(); ++i)
    known.layouts[static_cast<size_t>(node.outputs[i])] = result_layout(rule, known.strategy.nodes.back(), i);
}

// What ranks start the next step with is one value.
void note_mean(Propagated& known, size_t index) {
  const Output& output = known.graph.outputs()[index];
  const Axes& axes = known.own.axes_of(output.value);
  if (axes.empty()) return;
  require(is_floating(known.graph.type(output.value).dtype),
          "'{}' is {} and each rank makes its own next value of it, by cross_batch or vouched layouts; only a "
          "floating one has a mean over ranks",
          output.name, said(known.graph.type(output.value)));
  known.strategy.means[index] = axes;
}

// Outputs that update an input get its layout, others are replicated.
void place_outputs(Propagated& known) {
  for (size_t i = 0; i < known.graph.outputs().size(); ++i) {
    const Output& output = known.graph.outputs()[i];
    const bool anew = output.updates == kNoValue;
    known.strategy.outputs.push_back(anew ? Layout::replicated(known.graph.type(output.value).shape.rank())
                                          : known.layout_or_whole(output.updates));
    if (output.updates != kNoValue) note_mean(known, i);
  }
}

}  // namespace

RuleOf rule_of(const Graph& graph, const Node& node) {
  return computed_rule(graph, node);
}

Strategy propagate(const Graph& graph, const Mesh& mesh, Asks asks) {
  asks.inputs.resize(graph.inputs().size());
  Propagated known(graph, mesh, asks);
  place_inputs(known);
  for (size_t i = 0; i < graph.nodes().size(); ++i) choose(known, static_cast<NodeId>(i));
  for (const Input& input : graph.inputs()) known.strategy.inputs.push_back(known.layout_or_whole(input.value));
  place_outputs(known);
  return std::move(known.strategy);
}

Strategy propagate(const Graph& graph, const Mesh& mesh, std::vector<Layout> inputs) {
  Asks asks;
  for (Layout& layout : inputs) asks.inputs.emplace_back(std::move(layout));
  return propagate(graph, mesh, std::move(asks));
}

std::vector<Layout> value_layouts(const Graph& graph, const Strategy& strategy) {
  std::vector<Layout> layouts(graph.values().size());
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    layouts[static_cast<size_t>(graph.inputs()[i].value)] = strategy.inputs[i];
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const std::vector<Layout> results = result_layouts(*rule_of(graph, node), strategy.nodes[i]);
    for (size_t k = 0; k < results.size(); ++k) layouts[static_cast<size_t>(node.outputs[k])] = results[k];
  }
  return layouts;
}

}  // namespace trireme
