#include "trireme/plan/propagate.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/seeded_defect.h"
#include "trireme/op/op_def.h"
#include "trireme/op/structural.h"
#include "trireme/plan/op_names.h"
#include "trireme/plan/own_terms.h"
#include "trireme/plan/vouched.h"

namespace trireme {
namespace {

bool holds(const std::vector<int>& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// Chooses one node's cuts from the layouts its operands have.
class NodeChoice {
 public:
  // `have` is empty for an operand of which nothing is known yet.
  NodeChoice(const ShardingRule& rule, const std::vector<std::optional<Layout>>& have, const Mesh& mesh)
      : rule_(rule), have_(have), mesh_(mesh) {
    cuts_.axes.resize(rule.factors.size());
  }

  // `bytes` of each operand, and of all results.
  FactorCuts choose(const std::vector<int64_t>& bytes, int64_t result_bytes, bool sums_flow) {
    if (sums_flow) let_partials_through(bytes, result_bytes);
    std::vector<size_t> order(have_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
    for (const size_t operand : order) {
      if (have_[operand]) take_cuts(operand);
    }
    if (rule_.ring) take_ring();
    return cuts_;
  }

  // Cuts that are given, and by the axes of micro-batches as the operands come.
  FactorCuts extend(const FactorCuts& given) {
    cuts_ = given;
    for (size_t operand = 0; operand < have_.size(); ++operand) {
      if (have_[operand]) take_cuts(operand);
    }
    return cuts_;
  }

  // Where the cuts come from.
  std::string why() const {
    std::vector<size_t> from;
    for (const auto& [factor, operand] : owners_) {
      if (std::find(from.begin(), from.end(), operand) == from.end()) from.push_back(operand);
    }
    std::string out = cuts_.linear_set >= 0 ? "a partial sum flows through" : "";
    for (const size_t operand : from) {
      out +=
          fmt::format("{}operand {} comes as {}", out.empty() ? "" : "; ", operand, to_string(*have_[operand], mesh_));
    }
    return out.empty() ? "no operand comes cut" : out;
  }

 private:
  // The first linear set whose operands are all partial over the same axes, the others being whole over them.
  void let_partials_through(const std::vector<int64_t>& bytes, int64_t result_bytes) {
    for (size_t set = 0; set < rule_.linear.size(); ++set) {
      const std::vector<int>& members = rule_.linear[set];
      const std::optional<Layout>& first = have_[static_cast<size_t>(members.front())];
      if (!first || !first->is_partial()) continue;
      int64_t partial_bytes = 0;
      for (const int member : members) partial_bytes += bytes[static_cast<size_t>(member)];
      if (result_bytes > partial_bytes || !fits_through(members, first->partial)) continue;
      cuts_.through = first->partial;
      cuts_.linear_set = static_cast<int>(set);
      for (const PartialAxis& p : first->partial) used_.push_back(p.axis);
      return;
    }
  }

  bool fits_through(const std::vector<int>& members, const std::vector<PartialAxis>& partial) const {
    for (size_t i = 0; i < have_.size(); ++i) {
      if (holds(members, static_cast<int>(i))) {
        if (have_[i] && seeded_defect("propagate: sums flow on beside whole operands")) continue;
        if (!have_[i] || have_[i]->partial != partial) return false;
        continue;
      }
      if (!have_[i]) continue;
      for (const PartialAxis& p : partial) {
        if (have_[i]->uses(p.axis)) return false;
      }
    }
    return std::all_of(partial.begin(), partial.end(),
                       [](const PartialAxis& p) { return p.reduction == Reduction::kSum; });
  }

  void take_cuts(size_t operand) {
    const DimFactors& dims = rule_.in[operand];
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      size_t part = 0;
      for (const int axis : have_[operand]->dims[dim]) {
        if (holds(used_, axis)) continue;
        // A factor that another operand has cut already keeps its choice.
        while (part < dims[dim].size() && !add(dims[dim][part], axis, operand)) ++part;
        if (part == dims[dim].size()) break;
      }
    }
  }

  // The two factors of a ring are cut where an operand comes cut in each of them, over the same free axes.
  void take_ring() {
    const auto first = find_cut(rule_.ring->first);
    const auto second = find_cut(rule_.ring->second);
    if (!first || !second || first->axes != second->axes) return;
    FactorCuts trial = cuts_;
    trial.axes[static_cast<size_t>(rule_.ring->first)] = first->axes;
    trial.axes[static_cast<size_t>(rule_.ring->second)] = second->axes;
    if (!is_ring(rule_, trial) || !why_illegal(rule_, trial, mesh_).empty()) return;
    cuts_ = std::move(trial);
    owners_[rule_.ring->first] = first->operand;
    owners_[rule_.ring->second] = second->operand;
  }

  struct FoundCut {
    std::vector<int> axes;
    size_t operand = 0;
  };
  std::optional<FoundCut> find_cut(int factor) const {
    for (size_t operand = 0; operand < have_.size(); ++operand) {
      for (size_t dim = 0; have_[operand] && dim < rule_.in[operand].size(); ++dim) {
        if (rule_.in[operand][dim] != std::vector<int>{factor} || have_[operand]->dims[dim].empty()) continue;
        return FoundCut{have_[operand]->dims[dim], operand};
      }
    }
    return std::nullopt;
  }

  bool add(int factor, int axis, size_t operand) {
    const auto f = static_cast<size_t>(factor);
    const auto owner = owners_.find(factor);
    if (owner != owners_.end() && owner->second != operand) return false;
    FactorCuts trial = cuts_;
    trial.axes[f].push_back(axis);
    if (!why_illegal(rule_, trial, mesh_).empty()) return false;
    cuts_ = std::move(trial);
    owners_[factor] = operand;
    used_.push_back(axis);
    return true;
  }

  const ShardingRule& rule_;
  const std::vector<std::optional<Layout>>& have_;
  const Mesh& mesh_;
  FactorCuts cuts_;
  std::vector<int> used_;
  std::map<int, size_t> owners_;
};

class Propagation {
 public:
  Propagation(const Graph& graph, const Mesh& mesh, Asks asks)
      : graph_(graph),
        asks_(std::move(asks)),
        layouts_(graph.values().size()),
        own_(graph, mesh, asks_.own_terms),
        occurrences_(occurrences_of(graph)) {
    strategy_.mesh = mesh;
    asks_.inputs.resize(graph.inputs().size());
  }

  Strategy run() {
    strategy_.why_inputs.resize(graph_.inputs().size(), "nothing reads it cut");
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Input& input = graph_.inputs()[i];
      if (!asks_.inputs[i]) continue;
      check(*asks_.inputs[i], graph_.type(input.value).shape, strategy_.mesh, input.name, parts_of(input));
      layouts_[static_cast<size_t>(input.value)] = asks_.inputs[i];
      strategy_.why_inputs[i] = "asked for";
    }
    rules_.reserve(graph_.nodes().size());
    for (size_t i = 0; i < graph_.nodes().size(); ++i) choose(static_cast<NodeId>(i));
    for (const Input& input : graph_.inputs()) strategy_.inputs.push_back(layout_or_whole(input.value));
    for (const Output& output : graph_.outputs()) {
      const bool anew = output.updates == kNoValue || seeded_defect("propagate: what is updated is left whole");
      strategy_.outputs.push_back(anew ? Layout::replicated(graph_.type(output.value).shape.rank())
                                       : layout_or_whole(output.updates));
      if (output.updates != kNoValue) note_mean(output);
    }
    return std::move(strategy_);
  }

 private:
  // What ranks start the next step with is one value.
  void note_mean(const Output& output) {
    const std::vector<int>& axes = own_.axes_of(output.value);
    if (axes.empty()) return;
    require(is_floating(graph_.type(output.value).dtype),
            "'{}' is {} and each rank makes its own next value of it, by cross_batch or vouched layouts; only a "
            "floating one has a mean "
            "over ranks",
            output.name, to_string(graph_.type(output.value)));
    strategy_.means[strategy_.outputs.size() - 1] = axes;
  }

  Layout layout_or_whole(ValueId id) const {
    const std::optional<Layout>& layout = layouts_[static_cast<size_t>(id)];
    return layout ? *layout : Layout::replicated(graph_.type(id).shape.rank());
  }

  void choose(NodeId id) {
    const Node& node = graph_.node(id);
    rules_.push_back(rule_of(graph_, node));
    const ShardingRule& rule = rules_.back();
    const auto asked = asks_.nodes.find(id);
    if (asked != asks_.nodes.end()) {
      strategy_.nodes.push_back(in_micro_batches(node, rule, asked->second));
      strategy_.why_nodes.emplace_back("asked for");
    } else if (is_cast(node) && !layouts_[static_cast<size_t>(node.inputs[0])]) {
      strategy_.nodes.emplace_back().axes.resize(rule.factors.size());
      strategy_.why_nodes.emplace_back("nothing reads it cut");
      return;  // cut as the first op that reads it has it: settle()
    } else {
      follow_operands(id, node, rule);
    }
    settle_inputs(node, rule);
    strategy_.why_nodes.back() += own_.settle(id, rule, layouts_, strategy_.nodes.back());
    const std::vector<Layout> results = result_layouts(rule, strategy_.nodes.back());
    for (size_t i = 0; i < results.size(); ++i) layouts_[static_cast<size_t>(node.outputs[i])] = results[i];
  }

  // What is asked of a node says how ranks share it. Its part of the batch comes in micro-batches all the same.
  FactorCuts in_micro_batches(const Node& node, const ShardingRule& rule, const FactorCuts& asked) const {
    if (micro_batches(strategy_.mesh) == 1 || asked.vouched) return asked;
    std::vector<std::optional<Layout>> have;
    for (const ValueId operand : node.inputs) have.push_back(found_by(node, operand));
    for (std::optional<Layout>& layout : have) {
      if (!layout) continue;
      layout->partial.clear();
      for (std::vector<int>& axes : layout->dims) {
        std::erase_if(axes, [&](int axis) { return !is_micro_batch_axis(strategy_.mesh, axis); });
      }
    }
    return NodeChoice(rule, have, strategy_.mesh).extend(asked);
  }

  // The layout a value is to be seen in, cut in micro-batches as it is made.
  Layout in_micro_batches(ValueId id, const Layout& seen) const {
    const std::optional<Layout>& own = layouts_[static_cast<size_t>(id)];
    if (!own || micro_batches(strategy_.mesh) == 1) return seen;
    Layout out = seen;
    for (size_t dim = 0; dim < out.dims.size(); ++dim) {
      for (const int axis : own->dims[dim]) {
        if (is_micro_batch_axis(strategy_.mesh, axis) && !out.uses(axis)) out.dims[dim].push_back(axis);
      }
    }
    return fits(out, graph_.type(id).shape, strategy_.mesh) ? out : seen;
  }

  // Takes the cuts that the operands come with, or those of the node it is part of the gradient of.
  void follow_operands(NodeId id, const Node& node, const ShardingRule& rule) {
    if (node.gradient_of >= 0 && follow_vouched(node, rule)) return;
    std::vector<std::optional<Layout>> have;
    std::vector<int64_t> bytes;
    for (const ValueId operand : node.inputs) {
      have.push_back(found_by(node, operand));
      bytes.push_back(graph_.type(operand).bytes());
    }
    int64_t result_bytes = 0;
    for (const ValueId result : node.outputs) result_bytes += graph_.type(result).bytes();
    NodeChoice choice(rule, have, strategy_.mesh);
    strategy_.nodes.push_back(choice.choose(bytes, result_bytes, asks_.sums_flow));
    strategy_.why_nodes.push_back(choice.why() + as_gradient(node));
    if (const auto skip = asks_.as_it_comes.find(id); skip != asks_.as_it_comes.end())
      take_as_it_comes(node, rule, have, skip->second);
    if (node.gradient_of >= 0) copy_as_forward(node, rule);
  }

  // A node of the gradient of one whose layouts are vouched for lies as that one does.
  bool follow_vouched(const Node& node, const ShardingRule& rule) {
    const auto forward = static_cast<size_t>(node.gradient_of);
    const std::optional<VouchedLayouts>& layouts = strategy_.nodes[forward].vouched;
    if (!layouts || layouts->parts > 1 || asks_.own_terms.contains(node.gradient_of)) return false;
    const Node& of = graph_.node(node.gradient_of);
    std::vector<std::optional<Layout>> own;  // of what the same gradient makes
    for (const ValueId id : node.inputs)
      own.push_back(is_made_within(node, id) ? layouts_[static_cast<size_t>(id)] : std::nullopt);
    std::optional<VouchedLayouts> mine = mirrored(graph_, node, own, *layouts, strategy_.mesh);
    if (!mine) {
      require(
          !gives_a_gradient(node, of) || follows_rule(graph_, of, *layouts, strategy_.mesh),
          "self_define_shard of {}: {} of its gradient cannot be run on such pieces; cut the op as its rule allows, {}",
          name_of(of), node.op->name, to_string(rules_[forward]));
      return false;
    }
    strategy_.nodes.emplace_back().axes.resize(rule.factors.size());
    strategy_.nodes.back().vouched = std::move(mine);
    strategy_.why_nodes.push_back("vouched for" + as_gradient(node));
    return true;
  }

  // Where the rule would have an operand brought to another layout, it stays as it comes.
  void take_as_it_comes(const Node& node, const ShardingRule& rule, const std::vector<std::optional<Layout>>& have,
                        const std::vector<Layout>& results) {
    VouchedLayouts layouts;
    for (size_t i = 0; i < have.size(); ++i) {
      layouts.in.push_back(have[i] ? *have[i] : Layout::replicated(graph_.type(node.inputs[i]).shape.rank()));
      layouts.in.back().partial.clear();
    }
    const bool fits_rule = results.empty() && operand_layouts(rule, strategy_.nodes.back()) == layouts.in;
    if (fits_rule || layouts.in.empty()) return;
    layouts.out = results;
    if (results.empty()) {
      for (const ValueId id : node.outputs)
        layouts.out.push_back(cut_alike(layouts.in[0], graph_.type(id).shape, strategy_.mesh));
    }
    const std::string why = why_unsound(graph_, node, layouts, strategy_.mesh);
    require(why.empty(),
            "skip_redistribution of {}: its operand comes as {}: {}; give the result's layout after '->', or leave the "
            "attribute out",
            name_of(node), to_string(layouts.in[0], strategy_.mesh), why);
    strategy_.nodes.back().vouched = std::move(layouts);
    strategy_.why_nodes.back() = "vouched for: skip_redistribution";
  }

  // What is computed in copies forward is so back, along the dimension that is that one's.
  void copy_as_forward(const Node& node, const ShardingRule& rule) {
    const auto forward = static_cast<size_t>(node.gradient_of);
    const FactorCuts& asked = strategy_.nodes[forward];
    if (asked.copies <= 1 || def_of(node).traits.reads_place) return;
    const Node& of = graph_.node(node.gradient_of);
    const auto try_like = [&](size_t operand, const DimFactors& dims) {
      for (size_t dim = 0; dim < dims.size(); ++dim) {
        if (!holds(dims[dim], asked.copied_factor) || rule.in[operand][dim].size() != 1) continue;
        FactorCuts trial = strategy_.nodes.back();
        trial.copied_factor = rule.in[operand][dim].front();
        trial.copies = asked.copies;
        if (why_illegal(rule, trial, strategy_.mesh).empty()) strategy_.nodes.back() = std::move(trial);
      }
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      for (size_t k = 0; k < of.inputs.size(); ++k) {
        if (node.inputs[i] == of.inputs[k]) try_like(i, rules_[forward].in[k]);
      }
      for (size_t k = 0; k < of.outputs.size(); ++k) {
        if (graph_.is_gradient(node.inputs[i], of.outputs[k])) try_like(i, rules_[forward].out[k]);
      }
    }
  }

  // Inputs of which nothing is asked are cut as their first reader has them.
  void settle_inputs(const Node& node, const ShardingRule& rule) {
    const std::vector<Layout> operands = operand_layouts(rule, strategy_.nodes.back());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (layouts_[static_cast<size_t>(node.inputs[i])]) continue;
      Layout layout = operands[i];
      layout.partial.clear();
      for (std::vector<int>& axes : layout.dims) {  // only batches come in micro-batches
        std::erase_if(axes, [&](int axis) { return is_micro_batch_axis(strategy_.mesh, axis); });
      }
      settle(node.inputs[i], layout, fmt::format("as its first reader has it, {}", name_of(node)));
    }
  }

  // An input, or a cast of one, which is then cut alike.
  void settle(ValueId id, const Layout& layout, const std::string& why) {
    const Value& value = graph_.value(id);
    if (value.producer < 0) {
      const Input& input = graph_.inputs()[static_cast<size_t>(value.index)];
      if (!fits(layout, graph_.type(id).shape, strategy_.mesh, parts_of(input))) return;  // whole: its reader cuts it
      layouts_[static_cast<size_t>(id)] = layout;
      strategy_.why_inputs[static_cast<size_t>(value.index)] = why;
      return;
    }
    layouts_[static_cast<size_t>(id)] = layout;
    const auto cast = static_cast<size_t>(value.producer);
    for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
      for (const int factor : rules_[cast].in[0][dim])
        strategy_.nodes[cast].axes[static_cast<size_t>(factor)] = layout.dims[dim];
    }
    strategy_.why_nodes[cast] = why;
    const ValueId x = graph_.node(value.producer).inputs[0];
    if (!layouts_[static_cast<size_t>(x)]) settle(x, layout, why);
  }

  std::string name_of(const Node& node) const {
    return op_text(graph_, occurrences_, static_cast<NodeId>(&node - graph_.nodes().data()));
  }
  std::string as_gradient(const Node& node) const {
    if (node.gradient_of < 0) return "";
    return fmt::format(" (it is part of the gradient of {}, and follows it)", name_of(graph_.node(node.gradient_of)));
  }

  // The layout in which a node finds an operand.
  std::optional<Layout> found_by(const Node& node, ValueId operand) const {
    // The update of a parameter works on it as it is stored.
    const bool stored = graph_.value(operand).producer < 0 && node.phase == Phase::kUpdate;
    if (const auto seen = asks_.seen_as.find(operand); seen != asks_.seen_as.end() && !stored) {
      return in_micro_batches(operand, seen->second);
    }
    const std::optional<Layout>& own = layouts_[static_cast<size_t>(operand)];
    if (node.gradient_of < 0 || !own) return own;
    const Node& forward = graph_.node(node.gradient_of);
    const auto f = static_cast<size_t>(node.gradient_of);
    for (size_t i = 0; i < forward.inputs.size(); ++i) {
      if (forward.inputs[i] == operand) return operand_layouts(rules_[f], strategy_.nodes[f])[i];
    }
    const std::vector<Layout> results = result_layouts(rules_[f], strategy_.nodes[f]);
    for (size_t i = 0; i < forward.outputs.size(); ++i) {
      if (forward.outputs[i] == operand) return whole_where_partial(results[i], *own);
    }
    if (is_made_within(node, operand)) return own;
    for (size_t i = 0; i < forward.outputs.size(); ++i) {
      // One that is wider than its value is rounded where it lies.
      const bool is_wide = graph_.type(operand).dtype != graph_.type(forward.outputs[i]).dtype;
      if (is_wide || !graph_.is_gradient(operand, forward.outputs[i])) continue;
      // What ranks have of their own gets only what the rank's own part gives.
      return own_.axes_of(forward.outputs[i]).empty() ? whole_where_partial(results[i], *own) : *own;
    }
    return own;
  }

  // Whether a node makes the gradient of an operand, and no step on the way to one.
  bool gives_a_gradient(const Node& node, const Node& forward) const {
    return std::any_of(forward.inputs.begin(), forward.inputs.end(), [&](ValueId of) {
      return std::any_of(node.outputs.begin(), node.outputs.end(),
                         [&](ValueId id) { return graph_.is_gradient(id, of); });
    });
  }

  // Whether a node of the gradient of the same node makes it.
  bool is_made_within(const Node& node, ValueId operand) const {
    const NodeId producer = graph_.value(operand).producer;
    return producer >= 0 && graph_.node(producer).gradient_of == node.gradient_of;
  }

  // A gradient's layout from that of its value: the cuts are the value's; sums that are not done yet may flow on
  // over axes that do not cut it.
  static Layout whole_where_partial(const Layout& value, const Layout& own) {
    Layout out = value;
    out.partial.clear();
    for (const PartialAxis& p : own.partial) {
      if (!out.uses(p.axis)) out.partial.push_back(p);
    }
    return out;
  }

  const Graph& graph_;
  Asks asks_;
  std::vector<std::optional<Layout>> layouts_;  // of values, as they are made
  std::vector<ShardingRule> rules_;             // of nodes
  OwnTerms own_;
  std::vector<int> occurrences_;  // of nodes
  Strategy strategy_;
};

}  // namespace

ShardingRule rule_of(const Graph& graph, const Node& node) {
  std::vector<TensorType> in, out;
  for (const ValueId id : node.inputs) in.push_back(graph.type(id));
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
  const OpDef& def = def_of(node);
  return def.shard ? def.shard.get()({in, out, node.attrs}) : replicate_rule(in, out);
}

Strategy propagate(const Graph& graph, const Mesh& mesh, Asks asks) {
  return Propagation(graph, mesh, std::move(asks)).run();
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
    const std::vector<Layout> results = result_layouts(rule_of(graph, node), strategy.nodes[i]);
    for (size_t k = 0; k < results.size(); ++k) layouts[static_cast<size_t>(node.outputs[k])] = results[k];
  }
  return layouts;
}

}  // namespace trireme
