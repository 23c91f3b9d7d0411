// The tables of values (strategy_problem.h).
#include <algorithm>
#include <span>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/planner/strategy_problem.h"

namespace trireme {
namespace {

constexpr size_t kMostDelivered = 6;             // unlike layouts to which it is brought, where they are
constexpr size_t kMostStates = size_t{1} << 10;  // of what was delivered

bool can_become(const Layout& have, const Layout& want) {
  return std::all_of(want.partial.begin(), want.partial.end(), [&](const PartialAxis& p) {
    return std::find(have.partial.begin(), have.partial.end(), p) != have.partial.end();
  });
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

// Labels of one variable that mean the same to all these roles, which are of it, are one view.
StrategyProblem::View StrategyProblem::view_of(const std::vector<const Role*>& roles) {
  View out;
  std::vector<int32_t> of_label;
  std::map<std::vector<int>, int32_t> known;
  for (size_t label = 0; label < roles.front()->by_label->size(); ++label) {
    std::vector<int> means;
    for (const Role* const role : roles) means.push_back((*role->by_label)[label]);
    const auto [view, is_new] = known.try_emplace(means, static_cast<int32_t>(out.means.size()));
    if (is_new) out.means.push_back(std::move(means));
    of_label.push_back(view->second);
  }
  out.of_label = &*of_labels_.insert(std::move(of_label)).first;
  return out;
}

// Values to which a variable is the same share the variable of its views.
int StrategyProblem::variable_of(int variable, const View& view) {
  if (view.means.size() == view.of_label->size()) return variable;
  const auto [known, is_new] = views_.try_emplace({variable, view.of_label}, -1);
  if (!is_new) return known->second;
  known->second = problem_.add_variable(static_cast<int>(view.means.size()));
  const auto& rows = view_rows_.of({memo_number(view.of_label)}, [&] {
    solver::Table table{.variables = {0, 1}};
    for (size_t label = 0; label < view.of_label->size(); ++label)
      table.add({static_cast<int32_t>(label), (*view.of_label)[label]}, {});
    return std::move(table.all);
  });
  problem_.tables.push_back({{variable, known->second}, rows});
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
  const Layout& wanted = readers_[asked].layout;
  const Layout& made = layouts_[have];
  if (!can_become(made, wanted)) return false;
  const auto can_have = [&](const Layout& layout) {
    return std::ranges::any_of(*reader.by_label, [&](int other) { return readers_[other].layout == layout; });
  };
  if (reader.follows && wanted != made && can_have(made)) return false;
  const auto seen = space_.seen_as.find(value);
  return seen == space_.seen_as.end() || wanted == seen->second || !can_have(seen->second);
}

// What a value's table follows from. `whose`: of each role, its variable's number among them.
void StrategyProblem::set_key_of_value(ValueId id, const std::vector<const Role*>& roles,
                                       const std::vector<size_t>& whose) {
  const auto seen = space_.seen_as.find(id);
  const int seen_as = seen == space_.seen_as.end() ? -1 : layouts_.of(seen->second);
  key_.assign({memo_number(&graph_.type(id)), graph_.value(id).producer < 0 ? 1U : 0U,
               static_cast<uint64_t>(pricer_.sums_of(id)), static_cast<uint64_t>(seen_as),
               static_cast<uint64_t>(held_[static_cast<size_t>(id)]),
               static_cast<uint64_t>(space_.times_brought.of(id))});
  for (size_t role = 0; role < roles.size(); ++role) {
    key_.insert(key_.end(), {whose[role], memo_number(roles[role]->by_label), roles[role]->follows ? 1U : 0U});
  }
}

void StrategyProblem::add_value(ValueId id) {
  const auto at = static_cast<size_t>(id);
  std::vector<const Role*> roles{&makers_[at]};
  for (const Role& asker : askers_[at]) roles.push_back(&asker);
  std::vector<int> variables;
  std::vector<size_t> whose;
  for (const Role* const role : roles) {
    whose.push_back(static_cast<size_t>(std::ranges::find(variables, role->variable) - variables.begin()));
    if (whose.back() == variables.size()) variables.push_back(role->variable);
  }
  set_key_of_value(id, roles, whose);
  const ValueTable& made = value_tables_.of(key_, [&] { return table_of_value(id, roles, whose); });
  if (made.rows == nullptr) return add_value_in_turn(id);
  solver::Table table{{}, made.rows};
  for (const auto& [number, view] : made.columns) table.variables.push_back(variable_of(variables[number], view));
  problem_.tables.push_back(std::move(table));
}

StrategyProblem::ValueTable StrategyProblem::table_of_value(ValueId id, const std::vector<const Role*>& roles,
                                                            const std::vector<size_t>& whose) {
  std::vector<View> views;
  std::vector<size_t> which;  // of each role: of what its view means
  double rows = 1;
  for (size_t variable = 0; variable <= *std::ranges::max_element(whose); ++variable) {
    std::vector<const Role*> own;
    for (size_t role = 0; role < roles.size(); ++role) {
      if (whose[role] == variable) own.push_back(roles[role]);
    }
    views.push_back(view_of(own));
    rows *= static_cast<double>(views.back().means.size());
  }
  if (rows > space_.most_rows) return {};
  for (size_t role = 0; role < roles.size(); ++role)
    which.push_back(
        static_cast<size_t>(std::count(whose.begin(), whose.begin() + static_cast<int64_t>(role), whose[role])));
  ValueTable out;
  std::vector<int> sizes;
  std::vector<size_t> digits;  // of each view; one more for those that are always the same
  for (size_t view = 0; view < views.size(); ++view) {
    digits.push_back(sizes.size());
    if (views[view].means.size() == 1) continue;
    out.columns.emplace_back(view, views[view]);
    sizes.push_back(static_cast<int>(views[view].means.size()));
  }
  solver::Table table{.variables = std::vector<int>(sizes.size())};
  std::vector<int32_t> labels(sizes.size(), 0);
  do {
    std::vector<int> numbers;  // of the roles
    bool all_go = true;
    for (size_t role = 0; role < roles.size() && all_go; ++role) {
      const View& view = views[whose[role]];
      const size_t label = view.means.size() == 1 ? 0 : static_cast<size_t>(labels[digits[whose[role]]]);
      numbers.push_back(view.means[label][which[role]]);
      all_go = role == 0 || goes(id, numbers[0], *roles[role], numbers.back());
    }
    if (!all_go) continue;
    const std::vector<int> readers = distinct(std::span(numbers).subspan(1));
    const std::optional<int64_t> ps = delivery_ps(id, numbers[0], readers);
    if (ps) table.add(labels, {*ps, kept_bytes(id, numbers[0])});
  } while (count_up(labels, sizes));
  out.rows = std::move(table.all);
  return out;
}

// What each reader adds to what was delivered before it, where at most so many layouts are, and whether that drops any;
// nothing where there are too many ways.
std::optional<std::vector<StrategyProblem::Turn>> StrategyProblem::turns_of(ValueId id, size_t most, bool& drops) {
  const auto at = static_cast<size_t>(id);
  std::vector<Turn> out;
  std::vector<std::vector<int>> before = view_of({&makers_[at]}).means;
  for (const Role& asker : askers_[at]) {
    Turn& turn = out.emplace_back(Turn{.variable = asker.variable, .asked = view_of({&asker})});
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
    const auto is_same = [&](int other) { return readers_[other].layout == readers_[delivered[i]].layout; };
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
  const View made = view_of({&makers_[at]});
  std::vector<std::vector<int>> before = made.means;
  int delivered = made.means.size() == 1 ? -1 : variable_of(makers_[at].variable, made);
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
    const int asked = turn.asked.means.size() == 1 ? -1 : variable_of(turn.variable, turn.asked);
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
  MemoKey key{memo_number(&graph_.type(id)), graph_.value(id).producer < 0 ? 1U : 0U,
              static_cast<uint64_t>(pricer_.sums_of(id)), static_cast<uint64_t>(have)};
  key.insert(key.end(), readers.begin(), readers.end());
  const std::optional<int64_t>& once = delivered_.of(key, [&] {
    std::vector<ValueReader> all;
    for (const int reader : readers) all.push_back(readers_[reader]);
    return pricer_.value_if(id, layouts_[have], all, space_.candidates.allows_pieces);
  });
  return once ? std::optional(space_.times_brought.ps(id, *once)) : std::nullopt;
}

int64_t StrategyProblem::kept_bytes(ValueId id, int have) const {
  if (held_[static_cast<size_t>(id)] == 0) return 0;
  const TensorType& type = graph_.type(id);
  const Layout& layout = layouts_[have];
  const int64_t bytes = TensorType{type.dtype, local_shape(type.shape, layout, model_.mesh())}.bytes();
  return bytes / (graph_.value(id).producer < 0 ? space_.share.inputs : space_.share.others);
}

}  // namespace trireme
