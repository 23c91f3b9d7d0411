// The name of a job, by which its runs are told from those of other jobs.
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/launch/cluster/cluster.h"

namespace trireme::launch::cluster_name_test {
namespace {

// What a node of two says that comes for this start of the job. `name`: 0 where a person started its launcher anew.
NodeReport comes(int rank, int attempt, uint64_t name) {
  NodeReport report{.node_id = fmt::format("node{}", rank),
                    .instance = static_cast<uint64_t>(100 * attempt + rank + 1),
                    .node_rank = rank,
                    .world = 2,
                    .workers = 1,
                    .attempt = attempt,
                    .host = fmt::format("host{}", rank),
                    .store_address = "10.0.0.1",
                    .store_port = 4000};
  report.name = name;
  return report;
}

ClusterView view_of_started(Cluster& cluster, int attempt, uint64_t name) {
  cluster.report(comes(0, attempt, name), 20);
  cluster.report(comes(1, attempt, 0), 20);
  EXPECT_EQ(cluster.phase(), Phase::kRunning);
  return cluster.view_of("node1");
}

TEST(ClusterName, IsOneInAllStartsOfAJobAndUnderARestartedScheduler) {
  Cluster cluster({.world = 2, .restarts = 3}, 0);
  const ClusterView first = view_of_started(cluster, 0, 0);
  EXPECT_NE(first.name, 0U);

  NodeReport failed = comes(1, 0, first.name);
  failed.job = first.job;
  failed.first_rank = first.first_rank;
  failed.running_world = first.world;
  failed.state = NodeState::kFailed;
  failed.ending = {.exit_code = 3, .text = "rank 1 was killed"};
  EXPECT_EQ(cluster.report(failed, 10).name, first.name) << "who is told that it starts again";
  const ClusterView second = view_of_started(cluster, 1, first.name);
  EXPECT_NE(second.job, first.job);
  EXPECT_EQ(second.name, first.name);

  Cluster later({.world = 2, .restarts = 3}, 0);
  EXPECT_EQ(view_of_started(later, 2, first.name).name, first.name);
}

TEST(ClusterName, IsNoOtherJobs) {
  Cluster one({.world = 2}, 0), other({.world = 2}, 0);
  NodeReport elsewhere = comes(0, 0, 0);
  elsewhere.instance = 77;
  one.report(comes(0, 0, 0), 0);
  other.report(elsewhere, 0);
  for (Cluster* cluster : {&one, &other}) cluster->report(comes(1, 0, 0), 0);

  EXPECT_NE(one.view_of("node0").name, other.view_of("node0").name);
}

}  // namespace
}  // namespace trireme::launch::cluster_name_test
