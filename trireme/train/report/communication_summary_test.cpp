#include "trireme/train/report/communication_summary.h"

#include <gtest/gtest.h>

namespace trireme::communication_summary_test {
namespace {

TEST(CommunicationSummary, is_the_mean_and_the_rank_that_waits_most) {
  comm::spawn_ranks(4, "threads", [](comm::World& world) {
    const double exposed[] = {0.002, 0.001, 0.006, 0.003};
    const CommunicationSummary summary = over_ranks(&world, {0.010, exposed[world.rank()]});
    EXPECT_DOUBLE_EQ(summary.mean.busy_s, 0.010);
    EXPECT_DOUBLE_EQ(summary.mean.exposed_s, 0.003);
    EXPECT_EQ(summary.most_exposed_rank, 2);
    EXPECT_DOUBLE_EQ(summary.most_exposed.exposed_s, 0.006);
    EXPECT_EQ(to_string(summary), "10.0 ms a step, 70 % hidden; most exposed on rank 2: 6.0 ms");
  });
}

TEST(CommunicationSummary, of_one_rank_is_its_own) {
  const CommunicationSummary summary = over_ranks(nullptr, {});
  EXPECT_EQ(summary.mean.busy_s, 0);
  EXPECT_EQ(summary.most_exposed_rank, 0);
}

}  // namespace
}  // namespace trireme::communication_summary_test
