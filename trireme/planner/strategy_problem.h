// StrategyProblem: the choice of a strategy for a graph, as a sum of tables (planner/solver/problem.h). A variable is
// the cut of a unit (units.h) or the layout of an input. The table of a value has one row for each way in which it can
// be made and asked for by all its readers together. The cost of a choice is the price of the program that partition
// makes of it, to the picosecond (partition/strategy_price.h).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/memo.h"
#include "trireme/partition/reader_numbers.h"
#include "trireme/partition/strategy_price.h"
#include "trireme/planner/candidates.h"
#include "trireme/planner/held_bytes.h"
#include "trireme/planner/solver/problem.h"
#include "trireme/planner/times_brought.h"
#include "trireme/planner/units.h"

namespace trireme {

// What a search chooses among.
struct StrategySpace {
  Strategy base;                // how inputs and nodes are cut already; they keep that
  std::vector<AxisGroup> axes;  // of the mesh, that are given to them beside it
  // Nodes and inputs, by index, that keep what `base` says and get no more.
  std::set<NodeId> fixed_nodes = {};
  std::set<size_t> fixed_inputs = {};
  // Layouts in which readers must find values, for those readers that can.
  std::map<ValueId, Layout> seen_as = {};
  CandidateOptions candidates = {};
  HeldShare share = {};
  TimesBrought times_brought = {};
  double most_rows = 1 << 14;  // of the table of one value, before its readers are taken in turn
};

class StrategyProblem {
 public:
  // Graph, units, options and model must outlive this. Throws kUnsupported naming the value that too many readers ask
  // for in too many ways.
  StrategyProblem(const Graph& graph, const Units& units, StrategySpace space, const PartitionOptions& options,
                  const CostModel& model);

  const solver::Problem& problem() const { return problem_; }
  // Picoseconds of a unit of the problem's times, which are rounded down to it; more than 1 for steps of days.
  int64_t time_unit_ps() const { return time_unit_ps_; }
  // Whether values with many readers were limited to few layouts, so that not all strategies are among the choices.
  bool is_limited() const { return is_limited_; }
  Strategy strategy(const solver::Choice& choice) const;
  // Of the time of its price: what is computed. The rest moves values between ranks.
  int64_t computed_ps(const solver::Choice& choice) const;

 private:
  // The ways to cut a unit; alike units have the same.
  struct Ways {
    std::vector<std::vector<FactorCuts>> cuts;  // by way, of each node
    std::vector<int64_t> ps;                    // by way
    // Of each node, of each operand or result, by way: numbers of readers_ and layouts_.
    std::vector<std::vector<std::vector<int>>> asks, makes;
    std::shared_ptr<solver::Rows> rows;  // of the unit's table
  };
  // Who makes a value or reads it, by the labels of a variable: numbers of layouts_ or readers_. Alike units have the
  // same numbers, as one object.
  struct Role {
    int variable = -1;  // none: the same whatever is chosen
    const std::vector<int>* by_label = nullptr;
    bool follows = false;  // takes the value as it is made, where it can
  };
  // What a variable's labels are to one value: labels that mean the same to it are one view.
  struct View {
    const std::vector<int32_t>* of_label = nullptr;  // equal ones are one object
    std::vector<std::vector<int>> means;             // of each view: numbers of layouts_ or readers_
  };
  // A column for each variable to which the value has several views; the variables of its roles are numbered in the
  // order in which they come.
  struct ValueTable {
    std::vector<std::pair<size_t, View>> columns;
    std::shared_ptr<solver::Rows> rows;  // null: there would be too many
  };
  // A reader that comes after others.
  struct Turn {
    int variable = -1;  // the reader's
    View asked;
    std::vector<std::vector<int>> delivered;       // then: the layout that it is made in, and readers so far
    std::vector<std::array<size_t, 3>> rows = {};  // what was delivered before, what is asked, what is then
  };

  std::shared_ptr<const Ways> ways_of(size_t unit);
  std::shared_ptr<const Ways> make_ways(size_t unit, bool is_fixed);
  bool are_allowed(const std::vector<NodeId>& nodes, const std::vector<FactorCuts>& cuts) const;
  static void keep_looked_at(Ways& ways, const SearchOptions& limits);
  void add_inputs();
  void add_unit(size_t unit);
  void add_readers();
  void add_value(ValueId value);
  void add_value_in_turn(ValueId value);
  void set_key_of_value(ValueId value, const std::vector<const Role*>& roles, const std::vector<size_t>& whose);
  ValueTable table_of_value(ValueId value, const std::vector<const Role*>& roles, const std::vector<size_t>& whose);
  const std::vector<int>* kept(std::vector<int> by_label);
  View view_of(const std::vector<const Role*>& roles);
  int variable_of(int variable, const View& view);
  std::optional<std::vector<Turn>> turns_of(ValueId value, size_t most, bool& drops);
  size_t layouts_in(const std::vector<int>& delivered) const;
  bool follows(NodeId node, size_t operand) const;
  bool goes(ValueId value, int have, const Role& reader, int asked) const;
  // Nothing where it is not allowed.
  std::optional<int64_t> delivery_ps(ValueId value, int have, const std::vector<int>& readers);
  int64_t kept_bytes(ValueId value, int have) const;
  [[noreturn]] void fail_too_many_ways(ValueId value) const;

  const Graph& graph_;
  const Units& units_;
  StrategySpace space_;
  const CostModel& model_;
  StrategyPricer pricer_;
  solver::Problem problem_;
  int64_t time_unit_ps_ = 1;
  bool is_limited_ = false;
  LayoutNumbers layouts_;
  ReaderNumbers readers_;
  Memo<std::shared_ptr<const Ways>> known_ways_;
  std::vector<std::shared_ptr<const Ways>> ways_;                     // of units
  std::vector<int> variables_;                                        // of units
  std::vector<char> held_;                                            // of values (held_bytes.h)
  std::vector<Role> makers_;                                          // of values
  std::vector<std::vector<Role>> askers_;                             // of values
  std::deque<std::vector<int>> by_label_;                             // of inputs and outputs
  Memo<const std::vector<int>*> inputs_, updated_;                    // of them, of alike inputs and of outputs
  std::set<std::vector<int32_t>> of_labels_;                          // of all views
  std::map<std::pair<int, const std::vector<int32_t>*>, int> views_;  // their variables
  Memo<std::shared_ptr<solver::Rows>> view_rows_;                     // of tables of a variable and that of its views
  Memo<ValueTable> value_tables_;                                     // of alike values with alike makers and readers
  Memo<std::optional<int64_t>> delivered_;                            // prices, by what is delivered
  MemoKey key_;
};

}  // namespace trireme
