#include "trireme/partition/strategy_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/partition/delivery_reader.h"
#include "trireme/partition/node_pieces.h"

namespace trireme {
namespace {

// A program of a few pieces, to be priced.
class Scratch {
 public:
  explicit Scratch(const Mesh& mesh) { program.mesh = mesh; }

  ValueId add_input(const TensorType& whole, const Layout& layout) {
    const TensorType local{whole.dtype, local_shape(whole.shape, layout, program.mesh)};
    program.layouts.push_back(layout);
    program.whole.push_back(whole.shape);
    return program.graph.add_input(fmt::format("x{}", program.graph.inputs().size()), local, Role::kData);
  }

  Program program{.graph = Graph("pieces")};
};

bool shares_delivery(const ValueReader& made_for, const ValueReader& reader) {
  return DeliveryReader{made_for.phase, made_for.stage}.serves({reader.phase, reader.stage});
}

}  // namespace

int64_t StrategyPrice::total_ps() const {
  int64_t out = 0;
  for (const auto* const terms : {&nodes, &values, &means}) {
    for (const int64_t ps : *terms) out = sum_ps(out, ps);
  }
  return out;
}

StrategyPricer::StrategyPricer(const Graph& graph, const PartitionOptions& options, const CostModel& model)
    : graph_(graph), options_(options), model_(model), planners_(model.mesh(), options.costs, options.summed_once) {
  for (const Node& node : graph.nodes()) rules_.push_back(rule_of(graph, node));
}

NodePrice StrategyPricer::node(NodeId id, const FactorCuts& cuts) const {
  const Node& node = graph_.node(id);
  const std::vector<Layout> layouts = operand_layouts(rule(id), cuts);
  Scratch scratch(model_.mesh());
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(scratch.add_input(graph_.type(node.inputs[i]), layouts[i]));
  std::vector<TensorType> whole;
  for (const ValueId output : node.outputs) whole.push_back(graph_.type(output));
  NodePrice out;
  std::map<ValueId, size_t> windows_of;  // which operand's they are; those of another dimension are taken of them
  const auto take_windows = [&](ValueId input, const WindowAttrs& attrs) {
    const auto taken = windows_of.find(input);
    const size_t operand = taken == windows_of.end() ? static_cast<size_t>(input) : taken->second;
    out.windows.emplace_back(operand, attrs);
    TensorType widened{graph_.type(node.inputs[operand]).dtype, *scratch.program.whole[static_cast<size_t>(input)]};
    widened.shape[static_cast<int>(attrs.dim)] = attrs.size * attrs.length;
    const ValueId windows = scratch.add_input(widened, layouts[operand]);
    windows_of.emplace(windows, operand);
    return windows;
  };
  add_node_pieces(scratch.program, {node, rule(id), cuts}, std::move(inputs), whole, take_windows);
  out.ps = price_ps(scratch.program, model_);
  return out;
}

int64_t StrategyPricer::value(ValueId id, const Layout& have, const std::vector<ValueReader>& readers) {
  return *value_if(id, have, readers, {});
}

std::optional<int64_t> StrategyPricer::value_if(ValueId id, const Layout& have, const std::vector<ValueReader>& readers,
                                                const std::function<bool(const Program&)>& allows) {
  const TensorType& type = graph_.type(id);
  const bool is_input = graph_.value(id).producer < 0;
  const DType sums = sums_of(id);
  Deliveries deliveries(have, type, planners_.of(id));
  Scratch scratch(model_.mesh());
  std::vector<ValueId> pieces{scratch.add_input(type, have)};
  std::vector<size_t> piece_of;  // of each reader
  for (size_t i = 0; i < readers.size(); ++i) {
    piece_of.push_back(static_cast<size_t>(deliveries.deliver(readers[i].layout, static_cast<int>(i), [&](int other) {
      return !is_input || shares_delivery(readers[static_cast<size_t>(other)], readers[i]);
    })));
    for (size_t k = pieces.size() - 1; k < deliveries.all().size(); ++k) {
      const Delivery& delivery = deliveries.all()[k];
      pieces.push_back(add_delivery(scratch.program, delivery, pieces[static_cast<size_t>(delivery.from)], sums));
    }
  }
  struct Taken {
    ValueId windows = kNoValue;
    Phase made_for = Phase::kForward;
  };
  std::map<std::pair<ValueId, std::string>, Taken> taken;  // by what they are of
  for (size_t i = 0; i < readers.size(); ++i) {
    ValueId at = pieces[piece_of[i]];
    for (const WindowAttrs& attrs : readers[i].windows) {  // each of the ones before it
      Taken& known = taken[{at, Attrs::of(attrs).text()}];
      if (known.windows == kNoValue || known.made_for > readers[i].phase)
        known = {add_take_windows(scratch.program, at, attrs), readers[i].phase};
      at = known.windows;
    }
  }
  if (allows && !allows(scratch.program)) return std::nullopt;
  return price_ps(scratch.program, model_);
}

DType StrategyPricer::sums_of(ValueId id) const {
  const auto other = options_.sum_types.find(id);
  return other == options_.sum_types.end() ? graph_.type(id).dtype : other->second;
}

int64_t StrategyPricer::mean(ValueId id, Layout have, const std::vector<int>& axes, const Layout& want) {
  const TensorType& type = graph_.type(id);
  Scratch scratch(model_.mesh());
  const ValueId own = scratch.add_input(type, have);
  add_mean(scratch.program, own, axes, want, planners_.of(id));
  return price_ps(scratch.program, model_);
}

StrategyPrice StrategyPricer::price(const Strategy& strategy) {
  StrategyPrice out{.nodes = std::vector<int64_t>(graph_.nodes().size()),
                    .values = std::vector<int64_t>(graph_.values().size()),
                    .means = std::vector<int64_t>(graph_.outputs().size())};
  const std::vector<Layout> have = value_layouts(graph_, strategy);
  std::vector<int> stages;
  if (!strategy.stages.empty()) stages = stages_of(graph_, strategy.stages);
  std::vector<std::vector<ValueReader>> readers(graph_.values().size());
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    const NodePrice price = this->node(static_cast<NodeId>(i), strategy.nodes[i]);
    out.nodes[i] = price.ps;
    const std::vector<Layout> layouts = operand_layouts(rule(static_cast<NodeId>(i)), strategy.nodes[i]);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      ValueReader reader{layouts[k], node.phase, stages.empty() ? -1 : stages[i]};
      for (const auto& [operand, attrs] : price.windows) {
        if (operand == k) reader.windows.push_back(attrs);
      }
      readers[static_cast<size_t>(node.inputs[k])].push_back(std::move(reader));
    }
  }
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    const ValueId value = graph_.outputs()[i].value;
    const auto at = static_cast<size_t>(value);
    const auto mean = strategy.means.find(i);
    if (mean != strategy.means.end()) {
      out.means[i] = this->mean(value, have[at], mean->second, strategy.outputs[i]);
      continue;
    }
    const NodeId producer = graph_.value(value).producer;
    const int stage = producer < 0 || stages.empty() ? -1 : stages[static_cast<size_t>(producer)];
    readers[at].push_back({strategy.outputs[i], Phase::kUpdate, stage});
  }
  for (size_t v = 0; v < have.size(); ++v) out.values[v] = value(static_cast<ValueId>(v), have[v], readers[v]);
  return out;
}

}  // namespace trireme
