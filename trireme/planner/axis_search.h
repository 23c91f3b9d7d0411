// The exact search over some axes of a mesh, given what the other axes cut. dynamic_programming and
// recursive_programming are made of it. Its problem is that of strategy_problem.h, which planner/solver solves.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/planner/search_conditions.h"
#include "trireme/planner/search_result.h"
#include "trireme/planner/strategy_problem.h"

namespace trireme {

// The graph, the mesh and the conditions must outlive it.
class AxisSearch {
 public:
  // Throws kUnsupported if the user asks for something that these searches do not follow.
  AxisSearch(const Graph& graph, const Mesh& mesh, const SearchOptions& options, const SearchConditions& conditions);

  // The best strategy that cuts over `axes`, keeping what `base` cuts over other axes. Throws kInvalidArgument if none
  // fits in the memory, saying how much the smallest needs, and kUnsupported if there are too many choices.
  SearchResult over(const Strategy& base, const std::vector<AxisGroup>& axes);
  // The same while some axes have not been assigned yet. Nothing is cut as far as it will be then, so memory is not
  // checked.
  SearchResult over_without_limit(const Strategy& base, const std::vector<AxisGroup>& axes);

  // Nothing is cut but what is asked.
  const Strategy& base() const { return space_.base; }
  const Mesh& mesh() const { return mesh_; }
  // Whether choices were left out of the last search.
  bool is_limited() const { return is_limited_; }

 private:
  void take_asks();
  SearchResult over(const Strategy& base, const std::vector<AxisGroup>& axes, int64_t bytes);
  // The times of its tables, before these were rounded.
  int64_t exact_ps(const Strategy& strategy) const;

  const Graph& graph_;
  const Mesh& mesh_;
  const SearchConditions& conditions_;
  const Units units_;
  const CostModel model_;
  const int64_t bytes_;
  StrategySpace space_;
  bool is_limited_ = false;
};

}  // namespace trireme
