// Elimination: the least weight of a problem and a choice that has it, exactly (min-sum variable elimination). A run
// takes one elimination of its block and a power of what that leaves, however many copies it has.
//
// Time of one solve: for each variable the product of its own labels and its neighbours', and for each run
// labels^3 * log2(times).
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "trireme/planner/solver/buckets.h"
#include "trireme/planner/solver/min_plus.h"

namespace trireme::solver {

class Elimination {
 public:
  // The problem must have passed check() and stay where it is. `keep`: variables that are not eliminated.
  explicit Elimination(const Problem& problem, std::vector<int> keep = {});
  Elimination(Elimination&&) noexcept;
  ~Elimination();

  // Throws kUnsupported where a table in between would be too large.
  void solve(Weights weights);

  // The least weight; nothing where no labels go together.
  std::optional<int64_t> least() const;
  // Over the variables that are kept, in their order, numbered from 0.
  Weighted over_kept() const;

  // A choice of the least weight, given labels of the kept variables that go together.
  Choice choice(std::span<const int32_t> kept = {});

  // Of the last solve, by the numbers of the order: the tables of each bucket, and what it leaves.
  const Buckets& buckets() const { return buckets_; }
  std::vector<const Weighted*> tables_in(const Bucket& bucket) const;
  const std::vector<Weighted>& left() const { return left_; }

 private:
  struct RunSolver;

  void weigh_tables();
  void solve_run(size_t run, Weights weights);
  void take_labels(std::vector<int32_t>& of) const;
  int32_t cheapest_row(size_t table, std::span<const int32_t> of) const;
  std::vector<Choice> choose_run(size_t run, std::span<const int32_t> of);

  const Problem& problem_;
  std::vector<int> keep_;
  Buckets buckets_;
  std::vector<std::unique_ptr<RunSolver>> runs_;
  Weights weights_;
  std::vector<Weighted> tables_;
  std::vector<Weighted> left_;  // by each bucket
};

}  // namespace trireme::solver
