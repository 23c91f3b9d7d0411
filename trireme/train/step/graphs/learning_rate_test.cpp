#include "trireme/train/step/graphs/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme::learning_rate_test {
namespace {

TEST(Schedule, the_rate_rises_over_the_warmup_to_its_peak) {
  const Schedule schedule{.kind = Schedule::Kind::kCosine, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(rate_at(schedule, 2.0, 1, 100), 0.5);
  EXPECT_DOUBLE_EQ(rate_at(schedule, 2.0, 3, 100), 1.5);
  EXPECT_DOUBLE_EQ(rate_at(schedule, 2.0, 4, 100), 2.0);
  EXPECT_LT(rate_at(schedule, 2.0, 5, 100), 2.0);
}

TEST(Schedule, constant_stays) {
  for (const int64_t step : {1, 50, 100, 500}) {
    EXPECT_DOUBLE_EQ(rate_at({.kind = Schedule::Kind::kConstant}, 0.3, step, 100), 0.3);
  }
}

TEST(Schedule, linear_falls_evenly_to_its_last_share) {
  const Schedule schedule{.kind = Schedule::Kind::kLinear, .final_ratio = 0.2};
  EXPECT_DOUBLE_EQ(rate_at(schedule, 1.0, 25, 100), 0.8);
  EXPECT_DOUBLE_EQ(rate_at(schedule, 1.0, 50, 100), 0.6);
  EXPECT_DOUBLE_EQ(rate_at(schedule, 1.0, 100, 100), 0.2);
}

TEST(Schedule, cosine_is_half_way_in_the_middle_and_ends_at_its_last_share) {
  const Schedule schedule{.kind = Schedule::Kind::kCosine, .warmup_steps = 10, .final_ratio = 0.1};
  EXPECT_NEAR(rate_at(schedule, 1.0, 60, 110), 0.55, 1e-12);
  EXPECT_NEAR(rate_at(schedule, 1.0, 35, 110), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(rate_at(schedule, 1.0, 110, 110), 0.1, 1e-12);
}

TEST(Schedule, past_the_end_the_last_rate_stays) {
  EXPECT_DOUBLE_EQ(rate_at({.kind = Schedule::Kind::kLinear, .final_ratio = 0.5}, 1.0, 400, 100), 0.5);
}

}  // namespace
}  // namespace trireme::learning_rate_test
