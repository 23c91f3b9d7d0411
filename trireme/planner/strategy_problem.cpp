#include "trireme/planner/strategy_problem.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/planner/held_bytes.h"

namespace trireme {
namespace {

constexpr size_t kMostDelivered = 6;             // unlike layouts to which it is brought, where they are
constexpr size_t kMostStates = size_t{1} << 10;  // of what was delivered

bool can_become(const Layout& have, const Layout& want) {
  return std::all_of(want.partial.begin(), want.partial.end(), [&](const PartialAxis& p) {
    return std::find(have.partial.begin(), have.partial.end(), p) != have.partial.end();
  });
}

std::string text_of(const ValueReader& reader, const Mesh& mesh) {
  std::string out = fmt::format("{}/{}/{}", to_string(reader.layout, mesh), to_string(reader.phase), reader.stage);
  for (const WindowAttrs& attrs : reader.windows) out += "/" + Attrs::of(attrs).text();
  return out;
}

std::string text_of(const FactorCuts& cuts) {
  std::string through;
  for (const PartialAxis& p : cuts.through) through += fmt::format("{} ", p.axis);
  return fmt::format("{} {}:{} {}x{}", cuts.axes, cuts.linear_set, through, cuts.copied_factor, cuts.copies);
}

// Each number once, in the order in which they come.
std::vector<int> distinct(std::span<const int> numbers) {
  std::vector<int> out;
  for (const int number : numbers) {
    if (std::ranges::find(out, number) == out.end()) out.push_back(number);
  }
  return out;
}

// Counts up the digits; false after the last number.
bool count_up(std::vector<int32_t>& digits, const std::vector<int>& sizes) {
  size_t i = 0;
  while (i < sizes.size() && ++digits[i] == sizes[i]) digits[i++] = 0;
  return i < sizes.size();
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

int StrategyProblem::number_of(const Layout& layout) {
  const auto [known, is_new] =
      layout_numbers_.try_emplace(to_string(layout, model_.mesh()), static_cast<int>(layouts_.size()));
  if (is_new) layouts_.push_back(layout);
  return known->second;
}

int StrategyProblem::number_of(const ValueReader& reader) {
  const auto [known, is_new] =
      reader_numbers_.try_emplace(text_of(reader, model_.mesh()), static_cast<int>(readers_.size()));
  if (is_new) readers_.push_back(reader);
  return known->second;
}

void StrategyProblem::add_inputs() {
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const ValueId value = graph_.inputs()[i].value;
    std::vector<Layout> layouts{space_.base.inputs[i]};
    if (!space_.fixed_inputs.contains(i))
      layouts = candidates(graph_.type(value).shape, space_.base.inputs[i], space_.axes, model_.mesh());
    Role& maker = makers_[static_cast<size_t>(value)];
    maker.variable = problem_.add_variable(static_cast<int>(layouts.size()));
    for (const Layout& layout : layouts) maker.by_label.push_back(number_of(layout));
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
  const std::vector<NodeId>& nodes = units_.nodes(unit);
  const NodeId first = nodes.front();
  const FactorCuts& base = space_.base.nodes[static_cast<size_t>(first)];
  const bool is_fixed = space_.fixed_nodes.contains(first);
  std::shared_ptr<const Ways>& known = known_ways_[fmt::format("{} {} {}", units_.text(unit), text_of(base), is_fixed)];
  if (known) return known;
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
        out->asks[n][k].push_back(number_of(reader));
      }
      const std::vector<Layout> makes = result_layouts(units_.rule(nodes[n]), out->cuts.back()[n]);
      for (size_t k = 0; k < makes.size(); ++k) out->makes[n][k].push_back(number_of(makes[k]));
    }
  }
  if (out->cuts.empty()) {
    fail(ErrorKind::kUnsupported, "{} of '{}' cannot be cut as asked: its gradient could not be cut to match",
         graph_.node(first).op->name, graph_.scope_of(graph_.node(first)));
  }
  if (space_.candidates.limits.approximate && !is_fixed) keep_cheapest(*out, space_.candidates.limits.epsilon);
  return known = std::move(out);
}

// What is cut already is among them, so that all go together.
void StrategyProblem::keep_cheapest(Ways& ways, double epsilon) {
  const auto most = static_cast<size_t>(std::max(1.0, 1 / epsilon));
  if (ways.ps.size() <= most) return;
  std::vector<size_t> order(ways.ps.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin() + 1, order.end(), [&](size_t a, size_t b) { return ways.ps[a] < ways.ps[b]; });
  order.resize(most);
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
  solver::Table& table = problem_.add_table({variable});
  for (size_t way = 0; way < ways.ps.size(); ++way) table.add({static_cast<int32_t>(way)}, {ways.ps[way], 0});
  const std::vector<NodeId>& nodes = units_.nodes(unit);
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Node& node = graph_.node(nodes[n]);
    for (size_t k = 0; k < node.outputs.size(); ++k)
      makers_[static_cast<size_t>(node.outputs[k])] = {variable, ways.makes[n][k]};
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
          {variables_[unit], ways_[unit]->asks[n][k], follows(static_cast<NodeId>(i), k)});
    }
  }
  for (const Output& output : graph_.outputs()) {
    Role asker;
    if (output.updates == kNoValue) {
      asker.by_label.push_back(
          number_of(ValueReader{Layout::replicated(graph_.type(output.value).shape.rank()), Phase::kUpdate}));
    } else {
      const Role& updated = makers_[static_cast<size_t>(output.updates)];
      asker.variable = updated.variable;
      for (const int layout : updated.by_label)
        asker.by_label.push_back(number_of(ValueReader{layouts_[static_cast<size_t>(layout)], Phase::kUpdate}));
    }
    askers_[static_cast<size_t>(output.value)].push_back(std::move(asker));
  }
}

// Labels of one variable that mean the same to all these roles are one view.
StrategyProblem::View StrategyProblem::view_of(int variable, const std::vector<const Role*>& roles) const {
  View out{.variable = variable};
  std::map<std::vector<int>, int32_t> known;
  const size_t labels = variable < 0 ? 1 : static_cast<size_t>(problem_.labels[static_cast<size_t>(variable)]);
  for (size_t label = 0; label < labels; ++label) {
    std::vector<int> means;
    for (const Role* const role : roles) means.push_back(role->by_label[label]);
    const auto [view, is_new] = known.try_emplace(means, static_cast<int32_t>(out.means.size()));
    if (is_new) out.means.push_back(std::move(means));
    out.of_label.push_back(view->second);
  }
  return out;
}

// Values to which a variable is the same share the variable of its views.
int StrategyProblem::variable_of(const View& view) {
  if (view.means.size() == view.of_label.size()) return view.variable;
  const auto [known, is_new] = views_.try_emplace({view.variable, view.of_label}, -1);
  if (!is_new) return known->second;
  known->second = problem_.add_variable(static_cast<int>(view.means.size()));
  solver::Table& table = problem_.add_table({view.variable, known->second});
  for (size_t label = 0; label < view.of_label.size(); ++label)
    table.add({static_cast<int32_t>(label), view.of_label[label]}, {});
  return known->second;
}

// Of an elementwise op of which nothing is asked: the largest operand.
bool StrategyProblem::follows(NodeId id, size_t operand) const {
  const Node& node = graph_.node(id);
  if (!space_.candidates.limits.elementwise_follow || !def_of(node).traits.elementwise) return false;
  if (node.phase != Phase::kForward || space_.fixed_nodes.contains(id)) return false;
  const auto larger =
      std::ranges::max_element(node.inputs, {}, [&](ValueId value) { return graph_.type(value).shape.elements(); });
  return larger - node.inputs.begin() == static_cast<int64_t>(operand);
}

// Whether a reader may find the value so. One that must find it in some layout and can finds it in no other.
bool StrategyProblem::goes(ValueId value, int have, const Role& reader, int asked) const {
  const Layout& wanted = readers_[static_cast<size_t>(asked)].layout;
  const Layout& made = layouts_[static_cast<size_t>(have)];
  if (!can_become(made, wanted)) return false;
  const auto can_have = [&](const Layout& layout) {
    return std::ranges::any_of(reader.by_label,
                               [&](int other) { return readers_[static_cast<size_t>(other)].layout == layout; });
  };
  if (reader.follows && wanted != made && can_have(made)) return false;
  const auto seen = space_.seen_as.find(value);
  return seen == space_.seen_as.end() || wanted == seen->second || !can_have(seen->second);
}

void StrategyProblem::add_value(ValueId id) {
  const auto at = static_cast<size_t>(id);
  std::vector<const Role*> roles{&makers_[at]};
  for (const Role& asker : askers_[at]) roles.push_back(&asker);
  std::vector<int> whose;
  std::vector<View> views;
  std::vector<std::pair<size_t, size_t>> means_of;  // of each role: the view, and which of what it means
  for (const Role* const role : roles) {
    const auto found = static_cast<size_t>(std::ranges::find(whose, role->variable) - whose.begin());
    means_of.emplace_back(found, 0);
    if (found < whose.size()) continue;
    whose.push_back(role->variable);
    std::vector<const Role*> own;
    std::ranges::copy_if(roles, std::back_inserter(own), [&](const Role* r) { return r->variable == role->variable; });
    views.push_back(view_of(role->variable, own));
  }
  std::vector<size_t> met(views.size(), 0);
  for (auto& [view, which] : means_of) which = met[view]++;
  double rows = 1;
  for (const View& view : views) rows *= static_cast<double>(view.means.size());
  if (rows > space_.most_rows) return add_value_in_turn(id);
  std::vector<int> variables, sizes;
  std::vector<size_t> digits;  // of each view; one more for those that are always the same
  for (const View& view : views) {
    digits.push_back(sizes.size());
    if (view.means.size() == 1) continue;
    variables.push_back(variable_of(view));
    sizes.push_back(static_cast<int>(view.means.size()));
  }
  solver::Table table{.variables = variables};
  std::vector<int32_t> labels(sizes.size(), 0);
  do {
    std::vector<int> numbers;  // of the roles
    bool all_go = true;
    for (size_t role = 0; role < roles.size() && all_go; ++role) {
      const auto [view, which] = means_of[role];
      const bool is_one = views[view].means.size() == 1;
      numbers.push_back(views[view].means[is_one ? 0 : static_cast<size_t>(labels[digits[view]])][which]);
      all_go = role == 0 || goes(id, numbers[0], *roles[role], numbers.back());
    }
    if (!all_go) continue;
    const std::vector<int> readers = distinct(std::span(numbers).subspan(1));
    const std::optional<int64_t> ps = delivery_ps(id, numbers[0], readers);
    if (ps) table.add(labels, {*ps, kept_bytes(id, numbers[0])});
  } while (count_up(labels, sizes));
  problem_.tables.push_back(std::move(table));
}

// What each reader adds to what was delivered before it, where at most so many layouts are, and whether that drops any;
// nothing where there are too many ways.
std::optional<std::vector<StrategyProblem::Turn>> StrategyProblem::turns_of(ValueId id, size_t most, bool& drops) {
  const auto at = static_cast<size_t>(id);
  std::vector<Turn> out;
  std::vector<std::vector<int>> before = view_of(makers_[at].variable, {&makers_[at]}).means;
  for (const Role& asker : askers_[at]) {
    Turn& turn = out.emplace_back(Turn{.asked = view_of(asker.variable, {&asker})});
    std::map<std::vector<int>, size_t> known;
    for (size_t s = 0; s < before.size(); ++s) {
      for (size_t a = 0; a < turn.asked.means.size(); ++a) {
        const int reader = turn.asked.means[a][0];
        if (!goes(id, before[s][0], asker, reader)) continue;
        std::vector<int> state = before[s];
        if (std::find(state.begin() + 1, state.end(), reader) == state.end()) state.push_back(reader);
        if (turn.asked.means.size() > 1 && layouts_in(state) > most) {
          drops = true;
          continue;
        }
        if (!delivery_ps(id, state[0], {state.begin() + 1, state.end()})) continue;
        const auto [found, is_new] = known.try_emplace(state, turn.delivered.size());
        if (is_new) turn.delivered.push_back(std::move(state));
        turn.rows.push_back({s, a, found->second});
      }
    }
    if (turn.delivered.size() > kMostStates) return std::nullopt;
    before = turn.delivered;
  }
  return out;
}

// Unlike layouts among what readers ask for.
size_t StrategyProblem::layouts_in(const std::vector<int>& delivered) const {
  size_t out = 0;
  for (size_t i = 1; i < delivered.size(); ++i) {
    const auto is_same = [&](int other) {
      return readers_[static_cast<size_t>(other)].layout == readers_[static_cast<size_t>(delivered[i])].layout;
    };
    out += std::none_of(delivered.begin() + 1, delivered.begin() + static_cast<int64_t>(i), is_same) ? 1 : 0;
  }
  return out;
}

// What was delivered so far is a variable that goes from reader to reader: the layout that the value is made in, and
// those that were asked for, in the order in which they were. A table then has one reader, whatever their number.
void StrategyProblem::add_value_in_turn(ValueId id) {
  const auto at = static_cast<size_t>(id);
  std::optional<std::vector<Turn>> turns;
  bool drops = false;
  for (size_t most = kMostDelivered; !turns; --most) {
    if (most == 0) fail_too_many_ways(id);
    drops = false;
    turns = turns_of(id, most, drops);
  }
  is_limited_ = is_limited_ || drops;
  const View made = view_of(makers_[at].variable, {&makers_[at]});
  std::vector<std::vector<int>> before = made.means;
  int delivered = made.means.size() == 1 ? -1 : variable_of(made);
  solver::Table first;
  if (delivered >= 0) first.variables.push_back(delivered);
  for (size_t s = 0; s < before.size(); ++s) {
    const std::vector<int32_t> row(first.variables.size(), static_cast<int32_t>(s));
    first.add(row, {*delivery_ps(id, before[s][0], {}), kept_bytes(id, before[s][0])});
  }
  problem_.tables.push_back(std::move(first));
  const auto price_of = [&](const std::vector<int>& all) {
    return *delivery_ps(id, all[0], {all.begin() + 1, all.end()});
  };
  for (const Turn& turn : *turns) {
    const int asked = turn.asked.means.size() == 1 ? -1 : variable_of(turn.asked);
    const int next = turn.delivered.size() == 1 ? -1 : problem_.add_variable(static_cast<int>(turn.delivered.size()));
    solver::Table table;
    for (const int variable : {delivered, asked, next}) {
      if (variable >= 0 && std::ranges::find(table.variables, variable) == table.variables.end())
        table.variables.push_back(variable);
    }
    for (const std::array<size_t, 3>& ways : turn.rows) {
      if (delivered >= 0 && delivered == asked && ways[0] != ways[1]) continue;  // a reader that makes it, too
      std::vector<int32_t> row;
      for (const int variable : table.variables)
        row.push_back(static_cast<int32_t>(variable == delivered ? ways[0] : variable == asked ? ways[1] : ways[2]));
      table.add(row, {price_of(turn.delivered[ways[2]]) - price_of(before[ways[0]]), 0});
    }
    problem_.tables.push_back(std::move(table));
    before = turn.delivered;
    delivered = next;
  }
}

void StrategyProblem::fail_too_many_ways(ValueId id) const {
  fail(ErrorKind::kUnsupported,
       "%{} of graph '{}' can be made and asked for by its {} readers in too many ways. Give fewer axes at a time, or "
       "cut the ops around it by rules",
       id, graph_.name(), askers_[static_cast<size_t>(id)].size());
}

// Alike values of alike readers are priced once.
std::optional<int64_t> StrategyProblem::delivery_ps(ValueId id, int have, const std::vector<int>& readers) {
  const bool is_input = graph_.value(id).producer < 0;
  std::string key = fmt::format("{} {} {} {}|{}", to_string(graph_.type(id)), is_input, to_string(pricer_.sums_of(id)),
                                have, fmt::join(readers, ","));
  const auto [known, is_new] = delivered_.try_emplace(std::move(key));
  if (!is_new) return known->second;
  std::vector<ValueReader> all;
  for (const int reader : readers) all.push_back(readers_[static_cast<size_t>(reader)]);
  return known->second =
             pricer_.value_if(id, layouts_[static_cast<size_t>(have)], all, space_.candidates.allows_pieces);
}

int64_t StrategyProblem::kept_bytes(ValueId id, int have) const {
  if (held_[static_cast<size_t>(id)] == 0) return 0;
  const TensorType& type = graph_.type(id);
  const Layout& layout = layouts_[static_cast<size_t>(have)];
  return TensorType{type.dtype, local_shape(type.shape, layout, model_.mesh())}.bytes();
}

Strategy StrategyProblem::strategy(const solver::Choice& choice) const {
  Strategy out;
  out.mesh = model_.mesh();
  out.nodes.resize(graph_.nodes().size());
  const auto label_of = [&](int variable) { return static_cast<size_t>(choice.labels[static_cast<size_t>(variable)]); };
  const auto layout_of = [&](ValueId id) -> const Layout& {
    const Role& maker = makers_[static_cast<size_t>(id)];
    return layouts_[static_cast<size_t>(maker.by_label[label_of(maker.variable)])];
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
