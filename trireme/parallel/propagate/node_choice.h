// NodeChoice: the cuts of one node, chosen from the layouts that its operands come in, as far as its sharding rule
// allows. The largest operand goes first; partial sums flow on through linear ops whose results are no larger than the
// sums are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/base/few.h"
#include "trireme/op/sharding_rule.h"

namespace trireme {

class NodeChoice {
 public:
  // `have` is empty for an operand of which nothing is known yet.
  NodeChoice(const ShardingRule& rule, const std::vector<std::optional<Layout>>& have, const Mesh& mesh);

  // `bytes` of each operand, and of all results. `is_update`: an operand that comes cut as a larger one, and further
  // over other axes (slices of state), cuts further.
  FactorCuts choose(const std::vector<int64_t>& bytes, int64_t result_bytes, bool sums_flow, bool is_update = false);
  // Cuts that are given, and by the axes of micro-batches as the operands come.
  FactorCuts extend(const FactorCuts& given);
  // Where the cuts come from.
  std::string why() const;

 private:
  struct FoundCut {
    Axes axes;
    int operand = 0;
  };

  void let_partials_through(const std::vector<int64_t>& bytes, int64_t result_bytes);
  bool fits_through(const std::vector<int>& members, const PartialAxes& partial) const;
  void take_cuts(size_t operand);
  void take_ring();
  std::optional<FoundCut> find_cut(int factor) const;
  bool add(int factor, int axis, int operand, const Axes& of_dim);

  const ShardingRule& rule_;
  const std::vector<std::optional<Layout>>& have_;
  const Mesh& mesh_;
  bool is_update_ = false;
  FactorCuts cuts_;
  Few<int, 8> used_;
  Few<int, 8> owners_;  // by factor: the operand that it is cut as; -1: none
};

}  // namespace trireme
