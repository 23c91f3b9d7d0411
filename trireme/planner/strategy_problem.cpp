#include "trireme/planner/strategy_problem.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"

namespace trireme {
namespace {

void add_cuts_to(MemoKey& key, const FactorCuts& cuts) {
  const auto add = [&](int64_t number) { key.push_back(static_cast<uint64_t>(number)); };
  for (const Axes& axes : cuts.axes) {
    add(std::ssize(axes));
    for (const int axis : axes) add(axis);
  }
  add(std::ssize(cuts.through));
  for (const PartialAxis& partial : cuts.through) add(partial.axis);
  for (const int64_t number : {int64_t{cuts.linear_set}, int64_t{cuts.copied_factor}, cuts.copies}) add(number);
}

}  // namespace

StrategyProblem::StrategyProblem(const Graph& graph, const Units& units, StrategySpace space,
                                 const PartitionOptions& options, const CostModel& model)
    : graph_(graph),
      units_(units),
      space_(std::move(space)),
      model_(model),
      pricer_(graph, options, model),
      held_(held_values(graph)),
      makers_(graph.values().size()),
      askers_(graph.values().size()) {
  add_inputs();
  for (size_t unit = 0; unit < units_.size(); ++unit) add_unit(unit);
  add_readers();
  for (size_t v = 0; v < graph.values().size(); ++v) add_value(static_cast<ValueId>(v));
  time_unit_ps_ = solver::make_times_fit(problem_);
  check(problem_);
}

const std::vector<int>* StrategyProblem::kept(std::vector<int> by_label) {
  return &by_label_.emplace_back(std::move(by_label));
}

void StrategyProblem::add_inputs() {
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const ValueId value = graph_.inputs()[i].value;
    const bool is_fixed = space_.fixed_inputs.contains(i);
    const Layout& base = space_.base.inputs[i];
    const TensorType& type = graph_.type(value);
    Role& maker = makers_[static_cast<size_t>(value)];
    const std::vector<int64_t> parts = parts_of_input(space_.candidates, i);
    key_.assign({memo_number(&type), static_cast<uint64_t>(layouts_.of(base)), is_fixed ? 1U : 0U});
    key_.insert(key_.end(), parts.begin(), parts.end());
    maker.by_label = inputs_.of(key_, [&] {
      std::vector<int> numbers;
      for (const Layout& layout :
           is_fixed ? std::vector{base} : candidates(type.shape, base, space_.axes, model_.mesh(), parts))
        numbers.push_back(layouts_.of(layout));
      return kept(std::move(numbers));
    });
    maker.variable = problem_.add_variable(static_cast<int>(maker.by_label->size()));
  }
}

bool StrategyProblem::are_allowed(const std::vector<NodeId>& nodes, const std::vector<FactorCuts>& cuts) const {
  const CandidateOptions& options = space_.candidates;
  for (size_t n = 0; n < nodes.size() && options.allows; ++n) {
    if (!options.allows(graph_, graph_.node(nodes[n]), cuts[n], model_.mesh())) return false;
  }
  return true;
}

// Alike units are priced once.
std::shared_ptr<const StrategyProblem::Ways> StrategyProblem::ways_of(size_t unit) {
  const NodeId first = units_.nodes(unit).front();
  const bool is_fixed = space_.fixed_nodes.contains(first);
  MemoKey key = units_.kind(unit);
  add_cuts_to(key, space_.base.nodes[static_cast<size_t>(first)]);
  key.push_back(is_fixed ? 1 : 0);
  if (space_.candidates.parts) add_cuts_to(key, space_.candidates.parts->nodes[static_cast<size_t>(first)]);
  return known_ways_.of(key, [&] { return make_ways(unit, is_fixed); });
}

std::shared_ptr<const StrategyProblem::Ways> StrategyProblem::make_ways(size_t unit, bool is_fixed) {
  const std::vector<NodeId>& nodes = units_.nodes(unit);
  const NodeId first = nodes.front();
  const FactorCuts& base = space_.base.nodes[static_cast<size_t>(first)];
  std::vector<FactorCuts> all{base};
  if (!is_fixed)
    all = candidates(graph_, first, units_.rule(first), base, space_.axes, model_.mesh(), space_.candidates);
  auto out = std::make_shared<Ways>();
  for (const NodeId id : nodes) {
    out->asks.emplace_back(graph_.node(id).inputs.size());
    out->makes.emplace_back(graph_.node(id).outputs.size());
  }
  for (const FactorCuts& first_cuts : all) {
    std::vector<FactorCuts> cuts = units_.cuts(unit, first_cuts, model_.mesh(), space_.candidates.sums_flow);
    if (!are_allowed(nodes, cuts)) continue;
    out->cuts.push_back(std::move(cuts));
    out->ps.push_back(0);
    for (size_t n = 0; n < nodes.size(); ++n) {
      const Node& node = graph_.node(nodes[n]);
      const NodePrice price = pricer_.node(nodes[n], out->cuts.back()[n]);
      out->ps.back() = sum_ps(out->ps.back(), price.ps);
      const std::vector<Layout> asks = operand_layouts(units_.rule(nodes[n]), out->cuts.back()[n]);
      for (size_t k = 0; k < asks.size(); ++k) {
        // Readers that see the value through unlike windows ask for it in unlike ways, although it lies alike.
        ValueReader reader{asks[k], node.phase};
        for (const auto& [operand, attrs] : price.windows) {
          if (operand == k) reader.windows.push_back(attrs);
        }
        out->asks[n][k].push_back(readers_.of(reader));
      }
      const std::vector<Layout> makes = result_layouts(units_.rule(nodes[n]), out->cuts.back()[n]);
      for (size_t k = 0; k < makes.size(); ++k) out->makes[n][k].push_back(layouts_.of(makes[k]));
    }
  }
  if (out->cuts.empty()) {
    fail(ErrorKind::kUnsupported, "{} of '{}' cannot be cut as asked: its gradient could not be cut to match",
         graph_.node(first).op->name, graph_.scope_of(graph_.node(first)));
  }
  if (!is_fixed) keep_looked_at(*out, space_.candidates.limits);
  solver::Table table{.variables = {0}};
  for (size_t way = 0; way < out->ps.size(); ++way) table.add({static_cast<int32_t>(way)}, {out->ps[way], 0});
  out->rows = std::move(table.all);
  return out;
}

// What is cut already is among them, so that all go together.
void StrategyProblem::keep_looked_at(Ways& ways, const SearchOptions& limits) {
  const std::vector<size_t> order = looked_at(ways.ps, limits);
  if (order.size() == ways.ps.size()) return;
  const auto keep = [&](auto& all) {
    std::remove_reference_t<decltype(all)> kept;
    for (const size_t way : order) kept.push_back(all[way]);
    all = std::move(kept);
  };
  keep(ways.cuts);
  keep(ways.ps);
  for (auto* const of_nodes : {&ways.asks, &ways.makes}) {
    for (std::vector<std::vector<int>>& of_node : *of_nodes) {
      for (std::vector<int>& by_way : of_node) keep(by_way);
    }
  }
}

void StrategyProblem::add_unit(size_t unit) {
  ways_.push_back(ways_of(unit));
  const Ways& ways = *ways_.back();
  const int variable = problem_.add_variable(static_cast<int>(ways.cuts.size()));
  variables_.push_back(variable);
  problem_.tables.push_back({{variable}, ways.rows});
  const std::vector<NodeId>& nodes = units_.nodes(unit);
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Node& node = graph_.node(nodes[n]);
    for (size_t k = 0; k < node.outputs.size(); ++k)
      makers_[static_cast<size_t>(node.outputs[k])] = {variable, &ways.makes[n][k]};
  }
}

// In the order of the graph, outputs last: one that updates an input gets its layout, others are replicated.
void StrategyProblem::add_readers() {
  std::vector<std::pair<size_t, size_t>> place(graph_.nodes().size());  // unit, and which of its nodes
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    for (size_t n = 0; n < units_.nodes(unit).size(); ++n)
      place[static_cast<size_t>(units_.nodes(unit)[n])] = {unit, n};
  }
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const auto [unit, n] = place[i];
    const Few<ValueId, 4>& inputs = graph_.nodes()[i].inputs;
    for (size_t k = 0; k < inputs.size(); ++k) {
      askers_[static_cast<size_t>(inputs[k])].push_back(
          {variables_[unit], &ways_[unit]->asks[n][k], follows(static_cast<NodeId>(i), k)});
    }
  }
  for (const Output& output : graph_.outputs()) {
    Role asker;
    if (output.updates == kNoValue) {
      const int rank = graph_.type(output.value).shape.rank();
      asker.by_label = updated_.of({0, static_cast<uint64_t>(rank)}, [&] {
        return kept({readers_.of({Layout::replicated(rank), Phase::kUpdate})});
      });
    } else {
      const Role& updated = makers_[static_cast<size_t>(output.updates)];
      asker.variable = updated.variable;
      asker.by_label = updated_.of({1, memo_number(updated.by_label)}, [&] {
        std::vector<int> numbers;
        for (const int layout : *updated.by_label) numbers.push_back(readers_.of({layouts_[layout], Phase::kUpdate}));
        return kept(std::move(numbers));
      });
    }
    askers_[static_cast<size_t>(output.value)].push_back(asker);
  }
}

int64_t StrategyProblem::computed_ps(const solver::Choice& choice) const {
  int64_t out = 0;
  for (size_t unit = 0; unit < ways_.size(); ++unit) {
    const int32_t way = choice.labels[static_cast<size_t>(variables_[unit])];
    out = sum_ps(out, ways_[unit]->ps[static_cast<size_t>(way)]);
  }
  return out;
}

Strategy StrategyProblem::strategy(const solver::Choice& choice) const {
  Strategy out;
  out.mesh = model_.mesh();
  out.nodes.resize(graph_.nodes().size());
  const auto label_of = [&](int variable) { return static_cast<size_t>(choice.labels[static_cast<size_t>(variable)]); };
  const auto layout_of = [&](ValueId id) -> const Layout& {
    const Role& maker = makers_[static_cast<size_t>(id)];
    return layouts_[(*maker.by_label)[label_of(maker.variable)]];
  };
  for (const Input& input : graph_.inputs()) out.inputs.push_back(layout_of(input.value));
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const std::vector<FactorCuts>& cuts = ways_[unit]->cuts[label_of(variables_[unit])];
    for (size_t n = 0; n < cuts.size(); ++n) out.nodes[static_cast<size_t>(units_.nodes(unit)[n])] = cuts[n];
  }
  for (const Output& output : graph_.outputs()) {
    out.outputs.push_back(output.updates == kNoValue ? Layout::replicated(graph_.type(output.value).shape.rank())
                                                     : layout_of(output.updates));
  }
  return out;
}

}  // namespace trireme
