// Forward propagation of layouts: see strategy.h.
#include <algorithm>
#include <map>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/plan/strategy.h"

namespace trireme {
namespace {

bool holds(const std::vector<int>& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// Chooses one node's cuts from the layouts its operands have.
class NodeChoice {
 public:
  NodeChoice(const ShardingRule& rule, const std::vector<Layout>& have, const std::vector<int64_t>& weights,
             const Mesh& mesh)
      : rule_(rule), have_(have), weights_(weights), mesh_(mesh) {
    cuts_.axes.resize(rule.factors.size());
  }

  FactorCuts choose() {
    let_partials_through();
    std::vector<size_t> order(have_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weights_[a] > weights_[b]; });
    for (const size_t operand : order) take_cuts(operand);
    return cuts_;
  }

 private:
  // The first linear set whose operands are all partial over the same axes, the others being whole over them.
  void let_partials_through() {
    for (size_t set = 0; set < rule_.linear.size(); ++set) {
      const std::vector<int>& members = rule_.linear[set];
      const std::vector<PartialAxis>& partial = have_[static_cast<size_t>(members.front())].partial;
      if (partial.empty()) continue;
      bool same = true;
      for (size_t i = 0; i < have_.size(); ++i) {
        if (holds(members, static_cast<int>(i))) {
          same = same && have_[i].partial == partial;
          continue;
        }
        for (const PartialAxis& p : partial) same = same && !have_[i].uses(p.axis);
      }
      for (const PartialAxis& p : partial) same = same && p.reduction == Reduction::kSum;
      if (!same) continue;
      cuts_.through = partial;
      cuts_.linear_set = static_cast<int>(set);
      for (const PartialAxis& p : partial) used_.push_back(p.axis);
      return;
    }
  }

  void take_cuts(size_t operand) {
    const DimFactors& dims = rule_.in[operand];
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      size_t part = 0;
      for (const int axis : have_[operand].dims[dim]) {
        if (holds(used_, axis)) continue;
        // A factor that another operand has cut already keeps its choice.
        while (part < dims[dim].size() && !add(dims[dim][part], axis, operand)) ++part;
        if (part == dims[dim].size()) break;
      }
    }
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
  const std::vector<Layout>& have_;
  const std::vector<int64_t>& weights_;
  const Mesh& mesh_;
  FactorCuts cuts_;
  std::vector<int> used_;
  std::map<int, size_t> owners_;
};

}  // namespace

ShardingRule rule_of(const Graph& graph, const Node& node) {
  std::vector<TensorType> in, out;
  for (const ValueId id : node.inputs) in.push_back(graph.type(id));
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
  const OpDef& def = def_of(node);
  return def.shard ? def.shard.get()({in, out, node.attrs}) : replicate_rule(in, out);
}

Strategy propagate(const Graph& graph, const Mesh& mesh, std::vector<Layout> inputs) {
  Strategy strategy{mesh, std::move(inputs), {}, {}};
  std::vector<Layout> layouts(graph.values().size());
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    check(strategy.inputs[i], graph.type(input.value).shape, mesh, input.name);
    layouts[static_cast<size_t>(input.value)] = strategy.inputs[i];
  }
  for (const Node& node : graph.nodes()) {
    const ShardingRule rule = rule_of(graph, node);
    std::vector<Layout> have;
    std::vector<int64_t> weights;
    for (const ValueId id : node.inputs) {
      have.push_back(layouts[static_cast<size_t>(id)]);
      weights.push_back(graph.type(id).bytes());
    }
    strategy.nodes.push_back(NodeChoice(rule, have, weights, mesh).choose());
    const std::vector<Layout> results = result_layouts(rule, strategy.nodes.back());
    for (size_t i = 0; i < results.size(); ++i) layouts[static_cast<size_t>(node.outputs[i])] = results[i];
  }
  for (const Output& output : graph.outputs()) {
    strategy.outputs.push_back(output.updates == kNoValue
                                   ? Layout::replicated(graph.type(output.value).shape.rank())
                                   : layouts[static_cast<size_t>(output.updates)]);
  }
  return strategy;
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

Strategy data_parallel(const Graph& graph, int64_t ranks) {
  require(ranks >= 1, "data parallel over {} ranks; it must be 1 or more", ranks);
  const Mesh mesh({{"dp", ranks}});
  const std::vector<int> dp = mesh.find("dp");
  std::vector<Layout> inputs;
  for (const Input& input : graph.inputs()) {
    const Shape& shape = graph.type(input.value).shape;
    Layout layout = Layout::replicated(shape.rank());
    if (input.role == Role::kData) {
      require(shape.rank() >= 1, "data input '{}' is a scalar; its first dimension must be the batch", input.name);
      if (shape[0] % ranks != 0) {
        const int64_t below = shape[0] / ranks * ranks;
        fail(ErrorKind::kInvalidArgument,
             "the batch of {} samples ('{}' {}) does not divide over {} ranks; use {}{} samples, or {} ranks",
             shape[0], input.name, to_string(graph.type(input.value)), ranks,
             below > 0 ? fmt::format("{} or ", below) : "", below + ranks, std::gcd(shape[0], ranks));
      }
      layout.dims[0] = dp;
    }
    inputs.push_back(std::move(layout));
  }
  return propagate(graph, mesh, std::move(inputs));
}

}  // namespace trireme
