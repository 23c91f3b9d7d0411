#include "trireme/planner/solver/simplify.h"

#include <gtest/gtest.h>

#include "trireme/planner/solver/budget.h"
#include "trireme/planner/solver/random_problem_for_tests.h"

namespace trireme::solver::simplify_test {
namespace {

TEST(Simplify, of_10000_random_problems_leaves_the_best_price_of_any_budget) {
  int64_t labels = 0, left = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    std::mt19937_64 rng(seed);
    const Problem problem = draw_problem(rng, 7, 4);
    const int64_t bytes = draw_int(rng, 0, 60 * static_cast<int>(problem.tables.size()));

    const Simplified smaller = simplify(problem);

    check(smaller.problem);
    const std::optional<Found> found = cheapest_within(smaller.problem, {.bytes = bytes});
    const std::optional<Price> best = brute_force(problem, bytes);
    ASSERT_EQ(found && found->fits, best.has_value()) << "seed " << seed;
    for (const int count : problem.labels) labels += count;
    for (const int count : smaller.problem.labels) left += count;
    if (!found) continue;
    ASSERT_EQ(why_not(problem, smaller.restored(found->choice)), "") << "seed " << seed;
    if (best) {
      ASSERT_EQ(found->choice.price.time_ps, best->time_ps) << "seed " << seed;
    }
  }
  EXPECT_LT(left, labels * 8 / 10);
}

TEST(Simplify, merges_a_chain_of_elementwise_ops_into_one_variable) {
  Problem problem;
  for (int v = 0; v < 5; ++v) problem.add_variable(6);
  for (int v = 0; v < 4; ++v) {
    Table& op = problem.add_table({v, v + 1});
    for (int label = 0; label < 6; ++label) op.add({label, 5 - label}, {10 + label, label == 2 ? 7 : 9});
  }

  const Simplified smaller = simplify(problem);

  EXPECT_EQ(smaller.problem.labels.size(), 1U);
  const Choice choice = smaller.restored(*cheapest(smaller.problem));
  EXPECT_EQ(why_not(problem, choice), "");
  EXPECT_EQ(choice.price.time_ps, cheapest(problem)->price.time_ps);
}

TEST(Simplify, of_a_run_leaves_its_ends_and_its_price) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 rng(seed);
    Problem problem{.labels = {7, 7}};
    problem.runs.push_back(layer(rng, 7, 5));

    const Simplified smaller = simplify(problem);

    EXPECT_EQ(smaller.problem.labels, problem.labels);
    const std::optional<Choice> choice = cheapest(smaller.problem);
    ASSERT_TRUE(choice);
    EXPECT_EQ(why_not(problem, smaller.restored(*choice)), "");
    EXPECT_EQ(choice->price.time_ps, cheapest(problem)->price.time_ps);
  }
}

// Copies of a block have their rows in common, and what is done to these is done once.
TEST(Simplify, does_with_rows_in_common_what_it_does_with_each_table_for_itself) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 rng(seed);
    const int labels = draw_int(rng, 2, 4);
    solver::Run run{.times = draw_int(rng, 2, 6), .from = 0, .to = 1};
    run.block.labels = {labels, labels, draw_int(rng, 1, 4), draw_int(rng, 1, 4)};
    for (const std::vector<int>& scope : {std::vector{0, 2}, {2, 1}, {2, 3}, {0, 1}, {3}, {1, 3, 0}})
      fill_table(rng, run.block, scope, 90);
    Problem problem{.labels = {labels, labels}};
    fill_table(rng, problem, {0, 1}, 95);
    problem.runs.push_back(run);
    const Problem in_common = unroll(problem).problem;
    Problem apart = in_common;
    for (Table& table : apart.tables) table.own_rows();

    const Simplified a = simplify(in_common), b = simplify(apart);

    ASSERT_EQ(a.problem.labels, b.problem.labels) << "seed " << seed;
    const int64_t bytes = draw_int(rng, 0, 30 * static_cast<int>(in_common.tables.size()));
    const std::optional<Found> of_a = cheapest_within(a.problem, {.bytes = bytes});
    const std::optional<Found> of_b = cheapest_within(b.problem, {.bytes = bytes});
    ASSERT_EQ(of_a.has_value(), of_b.has_value()) << "seed " << seed;
    if (!of_a) continue;
    ASSERT_EQ(of_a->choice.labels, of_b->choice.labels) << "seed " << seed;
    ASSERT_EQ(of_a->choice.rows, of_b->choice.rows) << "seed " << seed;
    ASSERT_EQ(why_not(in_common, a.restored(of_a->choice)), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace trireme::solver::simplify_test
