#include "trireme/parallel/propagate/unsummed_values.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/parallel/strategy/vouched.h"

namespace trireme {
namespace {

bool lists(const Axes& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

void add_all(Axes& to, const Axes& axes) {
  for (const int axis : axes) {
    if (!lists(to, axis)) to.push_back(axis);
  }
}

bool is_of(const Node& node, ValueId id) {
  const auto among = [&](std::span<const ValueId> values) {
    return std::find(values.begin(), values.end(), id) != values.end();
  };
  return among(node.inputs) || among(node.outputs);
}

std::string op_and_scope(const Graph& graph, const Node& node) {
  return fmt::format("{} of '{}'", node.op->name, graph.scope_of(node));
}

[[noreturn]] void fail_mixed(const Graph& graph, const Node& node, int axis, const Mesh& mesh) {
  const std::string name = print_axes(std::span<const int>(&axis, 1), mesh);
  fail(ErrorKind::kInvalidArgument,
       "{} would mix values of which each rank of '{}' has its own, by cross_batch or by layouts that are vouched for; "
       "do not cut its "
       "operands by '{}', or let the sum over ranks be taken",
       op_and_scope(graph, node), name, name);
}

}  // namespace

UnsummedValues::UnsummedValues(const Graph& graph, const Mesh& mesh, const std::map<NodeId, bool>& asked)
    : graph_(graph),
      mesh_(mesh),
      asked_(asked),
      own_(graph.values().size()),
      read_by_the_part_(graph.values().size(), 0),
      operands_of_(graph.nodes().size()) {
  if (asked.empty()) return;
  for (const Node& node : graph.nodes()) {
    if (def_of(node).in_part == nullptr) continue;
    for (const ValueId id : node.inputs) read_by_the_part_[static_cast<size_t>(id)] = 1;
  }
}

std::string UnsummedValues::settle(NodeId id, const ShardingRule& rule, const std::vector<std::optional<Layout>>& made,
                                   FactorCuts& cuts) {
  const Node& node = graph_.node(id);
  if (node.gradient_of >= 0) return settle_backward(node, rule, made, cuts);
  std::string why = settle_forward(id, rule, cuts);
  operands_of_[static_cast<size_t>(id)] = operand_layouts(rule, cuts);
  return why;
}

Axes UnsummedValues::axes_of(std::span<const ValueId> values) const {
  Axes out;
  for (const ValueId id : values) add_all(out, axes_of(id));
  return out;
}

int64_t UnsummedValues::parts_for(const Node& node, const Axes& axes) const {
  return def_of(node).in_part == nullptr ? 1 : mesh_.size_of(axes);
}

std::string UnsummedValues::settle_forward(NodeId id, const ShardingRule& rule, FactorCuts& cuts) {
  const Node& node = graph_.node(id);
  const Axes read = axes_of(node.inputs);
  const auto asked = asked_.find(id);
  if (read.empty() && asked == asked_.end() && !cuts.vouched) return "";
  const std::vector<Layout> in = operand_layouts(rule, cuts);
  for (size_t i = 0; i < in.size(); ++i) {
    const NodeId producer = graph_.value(node.inputs[i]).producer;
    for (const int axis : axes_of(node.inputs[i])) {
      if (asked_.contains(producer) && in[i].dim_cut_by(axis) >= 0) fail_mixed(graph_, node, axis, mesh_);
    }
  }
  std::string why;
  Axes apart = read;  // over these the results may differ
  if (asked != asked_.end()) {
    for (const Layout& result : result_layouts(rule, cuts)) add_all(apart, result.partial_axes());
    const bool counted =
        std::ranges::any_of(node.outputs, [&](ValueId v) { return read_by_the_part_[static_cast<size_t>(v)] != 0; });
    if (auto kept = unsummed(rule, cuts, mesh_, asked->second && !counted)) {
      times_[id] = kept->factor;
      cuts.vouched = std::move(kept);
      why = "; each rank keeps its own term: cross_batch";
    }
  }
  if (cuts.vouched) {
    for (const Layout& operand : in) {
      for (const Axes& axes : operand.dims) add_all(apart, axes);
    }
  }
  const std::vector<Layout> out = result_layouts(rule, cuts);
  if (const int64_t parts = parts_for(node, read); parts > 1) {
    cuts.vouched = VouchedLayouts{.in = in, .out = out, .parts = parts};
    why += "; it counts each rank's own part of the batch: cross_batch";
  }
  for (size_t i = 0; i < out.size(); ++i) {
    Axes& own = own_[static_cast<size_t>(node.outputs[i])];
    for (const int axis : apart) {
      if (!out[i].uses(axis) && !is_micro_batch_axis(mesh_, axis)) own.push_back(axis);
    }
  }
  return why;
}

// For each dimension of what a node of a gradient makes, that of the forward node's operand whose gradient it becomes,
// by the links of the graph and through the nodes that read it on the way.
std::vector<std::optional<UnsummedValues::OperandDim>> UnsummedValues::becomes(ValueId made, NodeId forward) {
  const auto rank = static_cast<size_t>(graph_.type(made).shape.rank());
  std::vector<std::optional<OperandDim>> out(rank);
  const Few<ValueId, 4>& operands = graph_.node(forward).inputs;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!graph_.is_gradient(made, operands[k])) continue;
    for (size_t dim = 0; dim < rank; ++dim) out[dim] = OperandDim{k, dim};
    return out;
  }
  if (readers_.empty()) {
    readers_.resize(graph_.values().size());
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      for (const ValueId read : graph_.node(id).inputs) readers_[static_cast<size_t>(read)].push_back(id);
    }
  }
  for (const NodeId id : readers_[static_cast<size_t>(made)]) {
    const Node& reader = graph_.node(id);
    if (reader.gradient_of != forward) continue;
    const RuleOf rule = rule_of(graph_, reader);
    for (size_t r = 0; r < reader.outputs.size(); ++r) {
      const std::vector<std::optional<OperandDim>> result = becomes(reader.outputs[r], forward);
      for (size_t i = 0; i < reader.inputs.size(); ++i) {
        if (reader.inputs[i] != made) continue;
        for (size_t dim = 0; dim < rank; ++dim) {
          const FactorsOfDim& factor = rule->in[i][dim];
          const auto same = std::find(rule->out[r].begin(), rule->out[r].end(), factor);
          if (out[dim] || factor.size() != 1 || same == rule->out[r].end()) continue;
          out[dim] = result[static_cast<size_t>(same - rule->out[r].begin())];
        }
      }
    }
  }
  return out;
}

// Of a gradient that is spread over what the forward op's operand had, a rank makes its own part.
void UnsummedValues::cut_alike_what_is_made(const Node& node, const ShardingRule& rule, const Axes& axes,
                                            FactorCuts& cuts) {
  const std::vector<Layout>& lie = operands_of_[static_cast<size_t>(node.gradient_of)];
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    const std::vector<std::optional<OperandDim>> operands = becomes(node.outputs[r], node.gradient_of);
    for (size_t dim = 0; dim < rule.out[r].size(); ++dim) {
      if (rule.out[r][dim].size() != 1 || !operands[dim]) continue;
      const int factor = rule.out[r][dim].front();
      if (std::ranges::any_of(rule.in, [&](const DimFactors& operand) { return stands_in(operand, factor); })) continue;
      for (const int axis : lie[operands[dim]->operand].dims[operands[dim]->dim]) {
        FactorCuts trial = cuts;
        trial.axes[static_cast<size_t>(factor)].push_back(axis);
        if (lists(axes, axis) && why_illegal(rule, trial, mesh_).empty()) cuts = std::move(trial);
      }
    }
  }
}

std::string UnsummedValues::settle_backward(const Node& node, const ShardingRule& rule,
                                            const std::vector<std::optional<Layout>>& made, FactorCuts& cuts) {
  const Node& forward = graph_.node(node.gradient_of);
  const Axes of_results = axes_of(forward.outputs);
  Axes all = of_results;
  add_all(all, axes_of(forward.inputs));
  if (all.empty()) return "";
  if (!cuts.vouched) cut_alike_what_is_made(node, rule, all, cuts);
  const std::vector<Layout> in = operand_layouts(rule, cuts);
  const std::vector<Layout> out = result_layouts(rule, cuts);
  VouchedLayouts now{.in = in, .out = out};
  Axes terms, whole;    // axes over which operands are ranks' own terms, and over which they are one value
  bool begins = false;  // reads what later ops give
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    const std::optional<Layout>& have = made[static_cast<size_t>(id)];
    if (is_of(forward, id) || !have) continue;
    const NodeId producer = graph_.value(id).producer;
    const bool from_later = producer < 0 || graph_.node(producer).gradient_of != node.gradient_of;
    begins = begins || from_later;
    for (const int axis : all) {
      if (have->is_partial_over(axis)) {
        if (now.in[i].dim_cut_by(axis) >= 0) fail_mixed(graph_, node, axis, mesh_);
        if (!now.in[i].uses(axis)) now.in[i].add_partial(axis, Reduction::kSum);
        add_all(terms, {axis});
      } else if (from_later && lists(of_results, axis)) {
        if (!have->uses(axis)) add_all(whole, {axis});
        // A piece of it stays the rank's own.
        if (have->uses(axis) && (now.in[i].dim_cut_by(axis) < 0 || asked_.contains(node.gradient_of)))
          fail_mixed(graph_, node, axis, mesh_);
      }
    }
  }
  for (const int axis : whole) {
    if (lists(terms, axis)) fail_mixed(graph_, node, axis, mesh_);
    now.factor /= static_cast<double>(mesh_.axis(axis).size);  // of one value each rank's term is its share
  }
  add_all(terms, whole);
  for (Layout& result : now.out) {
    for (const int axis : terms) {
      if (!result.uses(axis)) result.add_partial(axis, Reduction::kSum);
    }
  }
  const auto times = times_.find(node.gradient_of);
  if (begins && times != times_.end()) now.factor *= times->second;
  now.parts = parts_for(node, all);
  if (now.in == in && now.out == out && now.factor == 1 && now.parts == 1) return "";
  cuts.vouched = std::move(now);
  return "; each rank keeps its own term, as the op whose gradient it is part of";
}

}  // namespace trireme
