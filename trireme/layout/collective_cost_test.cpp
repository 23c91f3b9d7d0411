#include "trireme/layout/collective_cost.h"

#include <gtest/gtest.h>

#include "trireme/layout/reshard.h"

namespace trireme::collective_cost_test {
namespace {

constexpr LinkCost kLink{.latency_s = 1e-6, .bytes_per_s = 1e9};
const ReshardCosts kCosts{.link = kLink, .step_s = 1e-5};

TEST(CollectiveCost, is_latencies_of_rounds_and_what_a_rank_sends) {
  EXPECT_DOUBLE_EQ(seconds(among_all(8, 8e6), kLink, kCosts), 1e-5 + 3e-6 + 7e-3);
  EXPECT_DOUBLE_EQ(seconds(among_all(8, 8e6, 2), kLink, kCosts), 1e-5 + 6e-6 + 14e-3);
  EXPECT_DOUBLE_EQ(among_all(5, 10).rounds, 3);
  EXPECT_DOUBLE_EQ(among_all(5, 10).bytes, 8);
  EXPECT_DOUBLE_EQ(among_all(1, 10, 2).bytes, 0);
}

TEST(CollectiveCost, is_what_steps_of_a_reshard_are_chosen_by) {
  const Mesh mesh = parse_mesh("dp=2,tp=4");
  const TensorType type{DType::kF32, {64, 64}};
  const auto of = [&](const char* from, const char* to) {
    double out = 0;
    for (const ReshardStep& step : plan_reshard(parse_layout(from, mesh), parse_layout(to, mesh), type, mesh, kCosts))
      out += seconds(step, type, mesh, kCosts);
    return out;
  };

  EXPECT_DOUBLE_EQ(of("[-, tp]", "[-, -]"), seconds(among_all(4, 64 * 64 * 4), kLink, kCosts));
  EXPECT_DOUBLE_EQ(of("[dp, tp]", "[dp, -]"), seconds(among_all(4, 32 * 64 * 4), kLink, kCosts));
  EXPECT_DOUBLE_EQ(of("[-, -] partial(sum: tp)", "[-, -]"), seconds(among_all(4, 64 * 64 * 4, 2), kLink, kCosts));
  EXPECT_DOUBLE_EQ(of("[-, -] partial(sum: tp)", "[tp, -]"), seconds(among_all(4, 64 * 64 * 4), kLink, kCosts));
  EXPECT_DOUBLE_EQ(of("[tp, -]", "[-, tp]"), seconds(among_all(4, 16 * 64 * 4), kLink, kCosts));
}

}  // namespace
}  // namespace trireme::collective_cost_test
