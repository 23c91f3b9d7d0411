#include "trireme/partition/strategy_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/memo.h"
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
  for (const Node& node : graph.nodes()) {
    rules_.push_back(rule_of(graph, node));
    kind_of_.push_back(kinds_.of(graph, node));
  }
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

int64_t StrategyPricer::mean(ValueId id, Layout have, const Axes& axes, const Layout& want) {
  const TensorType& type = graph_.type(id);
  Scratch scratch(model_.mesh());
  const ValueId own = scratch.add_input(type, have);
  add_mean(scratch.program, own, axes, want, planners_.of(id));
  return price_ps(scratch.program, model_);
}

// The terms of one strategy.
class StrategyPricer::Terms {
 public:
  Terms(StrategyPricer& pricer, const Strategy& strategy)
      : pricer_(pricer),
        graph_(pricer.graph_),
        strategy_(strategy),
        made_(graph_.values().size()),
        readers_of_(graph_.values().size()) {
    if (!strategy.stages.empty()) stages_ = stages_of(graph_, strategy.stages);
  }

  StrategyPrice run() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      made_[static_cast<size_t>(graph_.inputs()[i].value)] = layouts_.of(strategy_.inputs[i]);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) add_node(i);
    out_.means.assign(graph_.outputs().size(), 0);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) add_output(i);
    for (size_t v = 0; v < made_.size(); ++v) out_.values.push_back(value_ps(static_cast<ValueId>(v)));
    return std::move(out_);
  }

 private:
  // What follows from a node's kind and cuts: numbers of readers_ and layouts_ for its operands and results.
  struct OfNode {
    int64_t ps = 0;
    std::vector<int> asks, makes;
  };

  int stage_of(NodeId node) const { return node < 0 || stages_.empty() ? -1 : stages_[static_cast<size_t>(node)]; }

  void add_node(size_t i) {
    const Node& node = graph_.nodes()[i];
    const auto id = static_cast<NodeId>(i);
    set_key_of_node(id);
    const OfNode& known = nodes_.of(key_, [&] { return of_node(id); });
    out_.nodes.push_back(known.ps);
    for (size_t k = 0; k < node.inputs.size(); ++k)
      readers_of_[static_cast<size_t>(node.inputs[k])].push_back(known.asks[k]);
    for (size_t k = 0; k < node.outputs.size(); ++k) made_[static_cast<size_t>(node.outputs[k])] = known.makes[k];
  }

  void add_output(size_t i) {
    const ValueId value = graph_.outputs()[i].value;
    const auto at = static_cast<size_t>(value);
    const auto mean = strategy_.means.find(i);
    if (mean != strategy_.means.end()) {
      out_.means[i] = pricer_.mean(value, layouts_[made_[at]], mean->second, strategy_.outputs[i]);
      return;
    }
    const int stage = stage_of(graph_.value(value).producer);
    readers_of_[at].push_back(readers_.of({strategy_.outputs[i], Phase::kUpdate, stage}));
  }

  void set_key_of_node(NodeId id) {
    const FactorCuts& cuts = strategy_.nodes[static_cast<size_t>(id)];
    key_.clear();
    const auto add = [&](int64_t number) { key_.push_back(static_cast<uint64_t>(number)); };
    add(pricer_.kind_of_[static_cast<size_t>(id)]);
    add(static_cast<int64_t>(graph_.node(id).phase));
    add(stage_of(id));
    add(cuts.vouched ? id : -1);  // such layouts are those of one node
    for (const Axes& axes : cuts.axes) {
      add(std::ssize(axes));
      for (const int axis : axes) add(axis);
    }
    add(std::ssize(cuts.through));
    for (const PartialAxis& partial : cuts.through) {
      add(partial.axis);
      add(static_cast<int64_t>(partial.reduction));
    }
    add(cuts.linear_set);
    add(cuts.copied_factor);
    add(cuts.copies);
  }

  OfNode of_node(NodeId id) {
    const Node& node = graph_.node(id);
    const FactorCuts& cuts = strategy_.nodes[static_cast<size_t>(id)];
    const NodePrice price = pricer_.node(id, cuts);
    OfNode out{.ps = price.ps};
    const std::vector<Layout> asks = operand_layouts(pricer_.rule(id), cuts);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      ValueReader reader{asks[k], node.phase, stage_of(id)};
      for (const auto& [operand, attrs] : price.windows) {
        if (operand == k) reader.windows.push_back(attrs);
      }
      out.asks.push_back(readers_.of(reader));
    }
    for (const Layout& layout : result_layouts(pricer_.rule(id), cuts)) out.makes.push_back(layouts_.of(layout));
    return out;
  }

  int64_t value_ps(ValueId id) {
    const auto at = static_cast<size_t>(id);
    const std::vector<int>& readers = readers_of_[at];
    key_.assign({memo_number(&graph_.type(id)), memo_number(&pricer_.planners_.of(id)),
                 graph_.value(id).producer < 0 ? 1U : 0U, static_cast<uint64_t>(pricer_.sums_of(id)),
                 static_cast<uint64_t>(made_[at])});
    key_.insert(key_.end(), readers.begin(), readers.end());
    return values_.of(key_, [&] {
      std::vector<ValueReader> all;
      for (const int reader : readers) all.push_back(readers_[reader]);
      return pricer_.value(id, layouts_[made_[at]], all);
    });
  }

  StrategyPricer& pricer_;
  const Graph& graph_;
  const Strategy& strategy_;
  std::vector<int> stages_;
  LayoutNumbers layouts_;
  ReaderNumbers readers_;
  std::vector<int> made_;                     // of values: in which layout
  std::vector<std::vector<int>> readers_of_;  // of values
  Memo<OfNode> nodes_;
  Memo<int64_t> values_;
  MemoKey key_;
  StrategyPrice out_;
};

StrategyPrice StrategyPricer::price(const Strategy& strategy) {
  return Terms(*this, strategy).run();
}

}  // namespace trireme
