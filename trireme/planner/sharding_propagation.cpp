#include "trireme/planner/sharding_propagation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/parallel/propagate/propagate.h"
#include "trireme/partition/strategy_price.h"
#include "trireme/planner/units.h"

namespace trireme {
namespace {

constexpr int kMostSpreadAxes = 4;  // that are given one by one; of more, those that have one name go together

class Spread {
 public:
  Spread(const Graph& graph, const Mesh& mesh, const SearchOptions& options, const SearchConditions& conditions)
      : graph_(graph),
        mesh_(mesh),
        conditions_(conditions),
        axes_(mesh.axes() <= kMostSpreadAxes ? prime_axes(mesh) : named_axes(mesh)),
        model_(mesh, conditions.rates),
        pricer_(graph, conditions.partition, model_),
        units_(graph),
        layouts_(graph.values().size()),
        readers_(graph.values().size()),
        cuts_(graph.nodes().size()),
        is_queued_(graph.nodes().size(), 0) {
    limits_ = conditions.candidates;
    limits_.limits = options;
    limits_.sums_flow = conditions.asks.sums_flow;
    for (size_t unit = 0; unit < units_.size(); ++unit) unit_of_.emplace(units_.nodes(unit).front(), unit);
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      rules_.push_back(rule_of(graph, graph.nodes()[i]));
      if (graph.nodes()[i].phase != Phase::kForward) continue;
      for (const ValueId value : graph.nodes()[i].inputs)
        readers_[static_cast<size_t>(value)].push_back(static_cast<NodeId>(i));
    }
  }

  Strategy run() {
    const Asks& asks = conditions_.asks;
    for (const auto& [id, cuts] : asks.nodes) {
      if (graph_.node(id).phase == Phase::kForward) fix(id, cuts);
    }
    for (size_t i = 0; i < asks.inputs.size(); ++i)
      layouts_[static_cast<size_t>(graph_.inputs()[i].value)] = asks.inputs[i];
    spread();
    for (const Input& input : graph_.inputs()) {
      if (input.role == Role::kData && layouts_[static_cast<size_t>(input.value)]) queue_readers(input.value);
    }
    spread();  // to what no op that is asked for leads to
    Asks all = asks;
    for (size_t i = 0; i < cuts_.size(); ++i) {
      if (cuts_[i]) all.nodes.emplace(static_cast<NodeId>(i), *cuts_[i]);
    }
    return propagate(graph_, mesh_, all);
  }

 private:
  // What somebody says of an op besides cuts is for propagation to work out.
  bool follows_by_itself(NodeId id) const {
    return conditions_.asks.as_it_comes.contains(id) || conditions_.asks.unsummed.contains(id);
  }

  void spread() {
    while (!queue_.empty()) {
      const NodeId id = queue_.front();
      queue_.pop_front();
      if (!cuts_[static_cast<size_t>(id)] && !follows_by_itself(id)) fix(id, cheapest(id));
    }
  }

  void queue(NodeId id) {
    if (graph_.node(id).phase != Phase::kForward || std::exchange(is_queued_[static_cast<size_t>(id)], 1) != 0) return;
    queue_.push_back(id);
  }

  void queue_readers(ValueId value) {
    for (const NodeId reader : readers_[static_cast<size_t>(value)]) queue(reader);
  }

  void fix(NodeId id, const FactorCuts& cuts) {
    const Node& node = graph_.node(id);
    cuts_[static_cast<size_t>(id)] = cuts;
    const std::vector<Layout> results = result_layouts(*rules_[static_cast<size_t>(id)], cuts);
    for (size_t k = 0; k < results.size(); ++k) {
      const auto seen = conditions_.asks.seen_as.find(node.outputs[k]);
      layouts_[static_cast<size_t>(node.outputs[k])] =
          seen == conditions_.asks.seen_as.end() ? results[k] : seen->second;
      queue_readers(node.outputs[k]);
    }
    for (const ValueId operand : node.inputs) {
      if (const NodeId producer = graph_.value(operand).producer; producer >= 0) queue(producer);
    }
  }

  FactorCuts cheapest(NodeId id) {
    const ShardingRule& rule = *rules_[static_cast<size_t>(id)];
    std::vector<FactorCuts> all = candidates(graph_, id, rule, uncut(rule), axes_, mesh_, limits_);
    std::erase_if(all, [&](const FactorCuts& cuts) { return !units_.allow(unit_of_.at(id), cuts, mesh_, limits_); });
    std::vector<int64_t> work;
    for (const FactorCuts& cuts : all) work.push_back(pricer_.node(id, cuts).ps);
    // What moves as much: the one that leaves a rank the least to do.
    std::optional<std::tuple<int64_t, int64_t, size_t>> best;
    for (const size_t i : looked_at(work, limits_.limits)) {
      const std::optional<int64_t> moved = moved_ps(id, all[i]);
      if (!moved) continue;
      const std::tuple<int64_t, int64_t, size_t> price{*moved, work[i], i};
      if (!best || price < *best) best = price;
    }
    invariant(best.has_value(), "no way to cut {} goes with its neighbours", graph_.node(id).op->name);
    return all[std::get<2>(*best)];
  }

  std::optional<int64_t> moved_ps(NodeId id, const FactorCuts& cuts) {
    const Node& node = graph_.node(id);
    const std::vector<Layout> asks = operand_layouts(*rules_[static_cast<size_t>(id)], cuts);
    const std::vector<Layout> makes = result_layouts(*rules_[static_cast<size_t>(id)], cuts);
    int64_t out = 0;
    const auto add = [&](ValueId value, const Layout& have, const Layout& want) {
      const bool can = std::ranges::all_of(
          want.partial, [&](const PartialAxis& p) { return std::ranges::find(have.partial, p) != have.partial.end(); });
      const std::optional<int64_t> ps =
          can ? pricer_.value_if(value, have, {{want, Phase::kForward}}, limits_.allows_pieces) : std::nullopt;
      if (ps) out += *ps;
      return ps.has_value();
    };
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const std::optional<Layout>& have = layouts_[static_cast<size_t>(node.inputs[k])];
      if (!have && asks[k].is_partial()) return std::nullopt;  // nothing says that it will be made so
      if (have && !add(node.inputs[k], *have, asks[k])) return std::nullopt;
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      for (const NodeId reader : readers_[static_cast<size_t>(node.outputs[k])]) {
        const std::optional<FactorCuts>& chosen = cuts_[static_cast<size_t>(reader)];
        if (!chosen) continue;
        const std::vector<Layout> wants = operand_layouts(*rules_[static_cast<size_t>(reader)], *chosen);
        const Few<ValueId, 4>& inputs = graph_.node(reader).inputs;
        for (size_t i = 0; i < inputs.size(); ++i) {
          if (inputs[i] == node.outputs[k] && !add(inputs[i], makes[k], wants[i])) return std::nullopt;
        }
      }
    }
    return out;
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const SearchConditions& conditions_;
  const std::vector<AxisGroup> axes_;
  const CostModel model_;
  StrategyPricer pricer_;
  const Units units_;
  std::map<NodeId, size_t> unit_of_;  // of the nodes that others follow
  CandidateOptions limits_;
  std::vector<RuleOf> rules_;
  std::vector<std::optional<Layout>> layouts_;  // of values that are settled
  std::vector<std::vector<NodeId>> readers_;    // of values, forward
  std::vector<std::optional<FactorCuts>> cuts_;
  std::vector<char> is_queued_;
  std::deque<NodeId> queue_;
};

}  // namespace

Strategy sharding_propagation(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                              const SearchConditions& conditions) {
  return Spread(graph, mesh, options, conditions).run();
}

}  // namespace trireme
