#include "trireme/train/plan/questions/simulate_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

namespace trireme::simulate_run_test {
namespace {

using testing::HasSubstr;

TEST(SimulateRun, without_failures_a_run_is_its_steps_and_its_checkpoints) {
  const SimulatedRun run =
      simulate_run({.steps = 100, .ranks = 4, .step_s = 2, .checkpoint_every = 30, .checkpoint_s = 5});
  EXPECT_EQ(run.training_s, 200);
  EXPECT_EQ(run.checkpoint_s, 20) << "after 30, 60, 90 and the last";
  EXPECT_EQ(run.again_s, 0);
  EXPECT_EQ(run.total_s, 220);
  EXPECT_EQ(run.failures, 0);
  EXPECT_DOUBLE_EQ(run.goodput(), 200.0 / 220);
}

TEST(SimulateRun, a_failure_costs_what_was_not_saved_and_a_restart) {
  const SimulatedRun run = simulate_run({.steps = 20,
                                         .ranks = 4,
                                         .step_s = 2,
                                         .checkpoint_every = 5,
                                         .checkpoint_s = 1,
                                         .restart_s = 30,
                                         .failures = {{.rank = 3, .step = 8}}});
  EXPECT_EQ(run.failures, 1);
  EXPECT_EQ(run.steps_again, 2) << "6 and 7";
  EXPECT_EQ(run.again_s, 6) << "and the one that was broken off";
  EXPECT_EQ(run.restart_s, 30);
  EXPECT_EQ(run.total_s, 40 + 6 + 4 + 30);
}

TEST(SimulateRun, without_checkpoints_all_is_done_again) {
  const SimulatedRun run = simulate_run(
      {.steps = 10, .ranks = 1, .step_s = 1, .failures = {{.rank = 0, .step = 10}, {.rank = 0, .step = 10}}});
  EXPECT_EQ(run.failures, 2);
  EXPECT_EQ(run.steps_again, 18);
  EXPECT_EQ(run.again_s, 20);
}

TEST(SimulateRun, parts_add_up_and_a_seed_says_it_again) {
  RunConditions run{.steps = 5000,
                    .ranks = 100,
                    .step_s = 1,
                    .checkpoint_every = 50,
                    .checkpoint_s = 3,
                    .restart_s = 20,
                    .mtbf_s = 60000};
  const SimulatedRun once = simulate_run(run), again = simulate_run(run);
  EXPECT_EQ(once.total_s, again.total_s);
  EXPECT_NEAR(once.total_s, once.training_s + once.again_s + once.checkpoint_s + once.restart_s, 1e-6);
  EXPECT_GT(once.failures, 0);
  run.seed = 2;
  EXPECT_NE(simulate_run(run).total_s, once.total_s);
}

// Failures of a hundred seeds against their expectation, and the time lost against Daly's formula (2006): saving every
// tau seconds, a run takes M e^(R/M) (e^((tau + C)/M) - 1) N / tau, where failures also strike while starting; they do
// not here, which leaves M (e^((tau + C)/M) - 1) and R for each failure.
TEST(SimulateRun, failures_by_chance_cost_what_theory_says) {
  constexpr double kMean = 400, kSaving = 10, kRestart = 25;
  constexpr int64_t kSteps = 2000, kEvery = 80;
  double total = 0, failures = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const SimulatedRun run = simulate_run({.steps = kSteps,
                                           .ranks = 8,
                                           .step_s = 1,
                                           .checkpoint_every = kEvery,
                                           .checkpoint_s = kSaving,
                                           .restart_s = kRestart,
                                           .mtbf_s = 8 * kMean,
                                           .seed = seed});
    total += run.total_s - run.restart_s;
    failures += static_cast<double>(run.failures);
  }
  const double expected = kMean * std::expm1((kEvery + kSaving) / kMean) * kSteps / kEvery;
  EXPECT_NEAR(total / 100, expected, 0.02 * expected);
  EXPECT_NEAR(failures, total / kMean, 4 * std::sqrt(total / kMean));
}

TEST(SimulateRun, youngs_interval_is_better_than_half_and_twice_of_it) {
  RunConditions run{.steps = 20000, .ranks = 10, .step_s = 1, .checkpoint_s = 8, .restart_s = 5, .mtbf_s = 10 * 1600};
  run.checkpoint_every = best_checkpoint_every(run);
  EXPECT_EQ(run.checkpoint_every, 160);
  const auto mean_of = [&](int64_t every) {
    double sum = 0;
    for (run.seed = 1; run.seed <= 40; ++run.seed) {
      run.checkpoint_every = every;
      sum += simulate_run(run).total_s / 40;
    }
    return sum;
  };
  const double best = mean_of(160);
  EXPECT_LT(best, mean_of(40));
  EXPECT_LT(best, mean_of(640));
}

TEST(SimulateRun, conditions_that_cannot_be_are_refused) {
  const auto error_of = [](const RunConditions& run) -> std::string {
    try {
      simulate_run(run);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of({.steps = 0, .step_s = 1}), HasSubstr("0 steps of 1 ranks"));
  EXPECT_THAT(error_of({.step_s = 0}), HasSubstr("a step of 0 s; it must be above 0"));
  EXPECT_THAT(error_of({.step_s = 1, .checkpoint_s = -1}), HasSubstr("-1 s of a checkpoint"));
  EXPECT_THAT(error_of({.steps = 5, .ranks = 2, .step_s = 1, .failures = {{.rank = 2, .step = 1}}}),
              HasSubstr("rank 2 fails in step 1; there are ranks 0 to 1 and steps 1 to 5"));
  EXPECT_THAT(error_of({.steps = 5, .ranks = 2, .step_s = 1, .failures = {{.rank = 0, .step = 6}}}),
              HasSubstr("rank 0 fails in step 6"));
  EXPECT_THAT(error_of({.steps = 100, .ranks = 1000, .step_s = 1, .checkpoint_every = 100, .mtbf_s = 1000}),
              HasSubstr("not beyond the checkpoint after step 0: ranks fail every 1 s on average; save more often"));
}

}  // namespace
}  // namespace trireme::simulate_run_test
