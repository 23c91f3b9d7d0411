#include "trireme/planner/solver/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <limits>

#include "trireme/planner/solver/random_problem_for_tests.h"

namespace trireme::solver::budget_test {
namespace {

TEST(Budget, of_10000_random_problems_finds_what_all_choices_that_fit_have_least) {
  int none_fits = 0, needs_labels = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    std::mt19937_64 rng(seed);
    const Problem problem = draw_problem(rng, 7, 4);
    const int64_t bytes = draw_int(rng, 0, 60 * static_cast<int>(problem.tables.size()));

    const std::optional<Found> found = cheapest_within(problem, {.bytes = bytes});

    const std::optional<Price> best = brute_force(problem, bytes);
    ASSERT_EQ(found && found->fits, best.has_value()) << "seed " << seed;
    if (found) {
      ASSERT_EQ(why_not(problem, found->choice), "") << "seed " << seed;
    }
    if (!best) {
      ++none_fits;
      if (found) {
        ASSERT_FALSE(brute_force(problem, found->choice.price.bytes - 1)) << "seed " << seed;
      }
      continue;
    }
    ASSERT_EQ(found->choice.price.time_ps, best->time_ps) << "seed " << seed;
    ASSERT_LE(found->choice.price.bytes, bytes) << "seed " << seed;
    ASSERT_TRUE(found->is_optimal()) << "seed " << seed;
    needs_labels += found->labels > 0 ? 1 : 0;
  }
  EXPECT_GT(none_fits, 100);
  EXPECT_GT(needs_labels, 500);
}

Problem layers(int count, uint64_t seed, int labels = 35) {
  std::mt19937_64 rng(seed);
  Problem problem{.labels = {labels, labels}};
  problem.runs.push_back(layer(rng, labels, count));
  return problem;
}

// Between the fewest bytes and those of the fastest choice.
int64_t bytes_at(const Problem& problem, double share) {
  const Found least = *cheapest_within(problem, {.bytes = 0});
  const int64_t most = cheapest(problem)->price.bytes;
  return least.choice.price.bytes + static_cast<int64_t>(share * static_cast<double>(most - least.choice.price.bytes));
}

TEST(Budget, of_a_run_is_that_of_its_copies) {
  for (int count = 1; count <= 4; ++count) {
    const Problem problem = layers(count, 3, 6);
    const Problem plain = unroll(problem).problem;
    for (const double share : {0.0, 0.3, 0.7, 1.0}) {
      const int64_t bytes = bytes_at(problem, share);

      const Found a = *cheapest_within(problem, {.bytes = bytes});
      const Found b = *cheapest_within(plain, {.bytes = bytes});

      EXPECT_TRUE(a.is_optimal() && b.is_optimal());
      EXPECT_EQ(a.choice.price.time_ps, b.choice.price.time_ps) << count << " layers, " << share;
      EXPECT_EQ(why_not(problem, a.choice), "");
    }
  }
}

TEST(Budget, of_more_bytes_never_takes_longer) {
  const Problem problem = layers(3, 5, 8);
  int64_t before = std::numeric_limits<int64_t>::max();
  for (double share = 0; share <= 1.0; share += 0.05) {
    const Found found = *cheapest_within(problem, {.bytes = bytes_at(problem, share)});

    EXPECT_TRUE(found.is_optimal());
    EXPECT_LE(found.choice.price.time_ps, before);
    before = found.choice.price.time_ps;
  }
}

TEST(Budget, of_a_stage_of_12_layers_is_exact_in_a_fraction_of_a_second) {
  const Problem problem = layers(12, 1);
  for (const double share : {0.3, 0.7}) {
    const int64_t bytes = bytes_at(problem, share);
    const std::clock_t begin = std::clock();

    const Found found = *cheapest_within(problem, {.bytes = bytes});

    const double taken_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_TRUE(found.is_optimal());
    EXPECT_EQ(why_not(problem, found.choice), "");
    RecordProperty("milliseconds at " + std::to_string(share), std::to_string(taken_s * 1e3));
    RecordProperty("labels at " + std::to_string(share), std::to_string(found.labels));
    EXPECT_LE(found.solves, 12);
    EXPECT_LT(taken_s, 2);  // 0.1 s where nothing else runs
  }
}

TEST(Budget, with_a_gap_stops_at_a_bound_that_holds) {
  const Problem problem = layers(48, 2);
  const int64_t bytes = bytes_at(problem, 0.5);

  const Found near = *cheapest_within(problem, {.bytes = bytes, .gap = 1e-3});

  EXPECT_TRUE(near.fits);
  EXPECT_LE(near.choice.price.bytes, bytes);
  EXPECT_LE(near.bound_ps, near.choice.price.time_ps);
  EXPECT_LE(static_cast<double>(near.choice.price.time_ps - near.bound_ps), 1e-3 * static_cast<double>(near.bound_ps));
}

TEST(Budget, gives_what_it_has_where_labels_run_out) {
  const Problem problem = layers(4, 2);
  const int64_t bytes = bytes_at(problem, 0.5);
  const Found exact = *cheapest_within(problem, {.bytes = bytes});

  const Found found = *cheapest_within(problem, {.bytes = bytes, .most_labels = 10});

  EXPECT_TRUE(found.fits);
  EXPECT_FALSE(found.is_optimal());
  EXPECT_LE(found.bound_ps, exact.choice.price.time_ps);
  EXPECT_GE(found.choice.price.time_ps, exact.choice.price.time_ps);
  EXPECT_EQ(why_not(problem, found.choice), "");
}

}  // namespace
}  // namespace trireme::solver::budget_test
