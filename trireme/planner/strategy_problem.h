// StrategyProblem: the choice of a strategy for a graph as a sum of tables (plan/search/problem.h). A variable is how a
// value lies as it is made, or how one reader of it asks for it; the table of a node has a row for each candidate, the
// table of a value one for each way in which it can be made and asked for. What a choice costs is the price of the
// program that partition makes of it, to the picosecond (partition/strategy_price.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/partition/strategy_price.h"
#include "trireme/plan/search/problem.h"

namespace trireme {

class StrategyProblem {
 public:
  // All ways to give the axes to the ops and inputs of the graph, which are cut as `base` says and keep that. Graph,
  // options and model must outlive this. Throws kUnsupported naming the value that too many readers ask for in too many
  // ways.
  StrategyProblem(const Graph& graph, const Strategy& base, const std::vector<int>& axes,
                  const PartitionOptions& options, const CostModel& model);

  const search::Problem& problem() const { return problem_; }
  Strategy strategy(const search::Choice& choice) const;

 private:
  // Who asks for a value: a variable with the layouts that its labels are, or one layout.
  struct Asker {
    int variable = -1;
    std::vector<ValueReader> labels;
  };

  int add_layouts(const std::vector<Layout>& layouts, std::vector<int32_t>& label_of, std::vector<Layout>& labels);
  void add_inputs(const std::vector<int>& axes);
  void add_node(NodeId node, const std::vector<int>& axes);
  void add_outputs();
  void add_value(ValueId value);
  int64_t delivery_ps(ValueId value, const Layout& have, const std::vector<ValueReader>& readers);
  int64_t kept_bytes(ValueId value, const Layout& have) const;

  const Graph& graph_;
  const Strategy& base_;
  const CostModel& model_;
  StrategyPricer pricer_;
  search::Problem problem_;
  std::vector<int> made_;                            // of each value, its variable
  std::vector<std::vector<Layout>> made_as_;         // of each value, by label
  std::vector<std::vector<Asker>> askers_;           // of each value
  std::vector<std::vector<FactorCuts>> cuts_;        // of each node, by candidate
  std::vector<std::vector<int32_t>> row_candidate_;  // of each node, by row of its table
  std::vector<size_t> node_table_;                   // of each node
  std::map<std::string, int64_t> delivered_;         // prices, by what is delivered
};

}  // namespace trireme
