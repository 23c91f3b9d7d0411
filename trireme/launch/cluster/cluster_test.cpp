#include "trireme/launch/cluster/cluster.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

namespace trireme::launch::cluster_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

NodeReport node(int rank, int workers, int world) {
  NodeReport report;
  report.node_id = fmt::format("node{}", rank);
  report.instance = static_cast<uint64_t>(rank) + 100;
  report.node_rank = rank;
  report.world = world;
  report.workers = workers;
  report.host = fmt::format("host{}", rank);
  report.store_address = fmt::format("10.0.0.{}", rank);
  report.store_port = static_cast<uint16_t>(4000 + rank);
  return report;
}

// A report of a node that knows what it was told.
NodeReport after(NodeReport report, const ClusterView& view) {
  report.job = view.job;
  report.first_rank = view.first_rank;
  report.running_world = view.world;
  report.state = NodeState::kRunning;
  report.seen = view.version;
  return report;
}

NodeReport ended(NodeReport report, Ending ending = {}) {
  report.state = NodeState::kEnded;
  report.ending = std::move(ending);
  return report;
}

NodeReport failed(NodeReport report, Ending ending) {
  report.state = NodeState::kFailed;
  report.ending = std::move(ending);
  return report;
}

std::string refusal(Cluster& cluster, const NodeReport& report, int64_t now_ms = 0) {
  return cluster.report(report, now_ms).refused;
}

TEST(Cluster, RanksAreProvisionalUntilAllAreThereAndThenByNodeRank) {
  Cluster cluster({.world = 6}, 0);

  const ClusterView first = cluster.report(node(2, 3, 6), 0);
  EXPECT_EQ(first.phase, Phase::kForming);
  EXPECT_EQ(first.first_rank, 0);
  EXPECT_EQ(cluster.report(node(0, 1, 6), 0).first_rank, 3);
  const ClusterView last = cluster.report(node(1, 2, 6), 0);

  EXPECT_EQ(last.phase, Phase::kRunning);
  EXPECT_EQ(cluster.view_of("node0").first_rank, 0);
  EXPECT_EQ(last.first_rank, 1);
  EXPECT_EQ(cluster.view_of("node2").first_rank, 3);
  EXPECT_EQ(last.store_address, "10.0.0.0");
  EXPECT_EQ(last.store_port, 4000);
  EXPECT_THAT(cluster.take_events(),
              Contains(HasSubstr("node 2 ('node2' on host2): ranks 0 to 2 for now -> ranks 3 to 5")));
}

TEST(Cluster, FinalRanksDoNotDependOnTheOrderOfComing) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    // Nodes with ranks of their own, with numbers for ids, and with neither, some on one host.
    std::vector<NodeReport> nodes;
    const int count = 1 + static_cast<int>(random() % 12);
    for (int i = 0; i < count; ++i) {
      NodeReport one = node(i, 1 + static_cast<int>(random() % 4), 0);
      one.host = fmt::format("host{}", random() % 4);
      if (random() % 2 == 0) one.node_rank = -1;
      if (random() % 3 == 0) one.node_id = std::to_string(i);
      nodes.push_back(one);
    }
    const int world =
        std::accumulate(nodes.begin(), nodes.end(), 0, [](int sum, const NodeReport& n) { return sum + n.workers; });
    std::map<std::string, std::vector<int>> expected;
    for (int order = 0; order < 4; ++order) {
      std::ranges::shuffle(nodes, random);
      Cluster cluster({.world = world}, 0);
      for (NodeReport& one : nodes) {
        one.world = world;
        ASSERT_EQ(refusal(cluster, one), "");
      }
      std::set<int> ranks;
      std::set<std::pair<int, int>> places;  // node and local rank: no two ranks share one
      for (const NodeReport& one : nodes) {
        const ClusterView view = cluster.view_of(one.node_id);
        ASSERT_EQ(view.phase, Phase::kRunning);
        for (int i = 0; i < one.workers; ++i) {
          ranks.insert(view.first_rank + i);
          places.emplace(view.node_index, view.first_local + i);
        }
        EXPECT_LE(view.first_local + one.workers, view.local_world);
        const std::vector<int> place{view.first_rank, view.node_index, view.first_local, view.local_world};
        EXPECT_EQ(expected.try_emplace(one.node_id, place).first->second, place);
      }
      EXPECT_EQ(ranks.size(), static_cast<size_t>(world));
      EXPECT_EQ(*ranks.rbegin(), world - 1);
      EXPECT_EQ(places.size(), static_cast<size_t>(world));
    }
  }
}

TEST(Cluster, WorkersOfOneMachineAreOneNodeAndMachinesOfOneNameAreNot) {
  Cluster cluster({.world = 4}, 0);
  for (int i = 0; i < 4; ++i) {
    NodeReport worker = node(i, 1, 4);
    worker.node_rank = -1;
    worker.host = "localhost";
    worker.machine = static_cast<uint64_t>(i % 2);
    cluster.report(worker, 0);
  }
  for (int i = 0; i < 4; ++i) {
    const ClusterView view = cluster.view_of(fmt::format("node{}", i));
    EXPECT_EQ(view.node_index, i % 2);
    EXPECT_EQ(view.first_local, i / 2);
    EXPECT_EQ(view.local_world, 2);
    EXPECT_EQ(view.nodes, 2);
    EXPECT_EQ(view.first_rank, 2 * (i % 2) + i / 2);
  }
}

TEST(Cluster, NodeIdsThatAreNumbersAreRanks) {
  Cluster cluster({.world = 12}, 0);
  for (const int id : {11, 3, 0, 10, 9, 1, 2, 8, 4, 7, 6, 5}) {
    NodeReport worker = node(id, 1, 12);
    worker.node_rank = -1;
    worker.node_id = std::to_string(id);
    cluster.report(worker, 0);
  }
  for (int id = 0; id < 12; ++id) EXPECT_EQ(cluster.view_of(std::to_string(id)).first_rank, id);
}

TEST(Cluster, Section1_8_Item2_SurplusWorkersAreRefusedAndTheOthersStay) {
  Cluster cluster({.world = 8}, 0);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(refusal(cluster, node(i, 1, 8)), "");

  EXPECT_EQ(refusal(cluster, node(9, 2, 8)),
            "7 of the job's 8 ranks are taken by 7 nodes, so there is no place for 2 more");
  EXPECT_EQ(refusal(cluster, node(7, 1, 8)), "");
  cluster.take_events();
  const NodeReport surplus = node(8, 1, 8);
  EXPECT_EQ(refusal(cluster, surplus), "8 of the job's 8 ranks are taken by 8 nodes, so there is no place for 1 more");
  EXPECT_NE(refusal(cluster, surplus), "");
  EXPECT_THAT(cluster.take_events(), testing::ElementsAre(HasSubstr("is refused: 8 of"))) << "once, not twice";
  EXPECT_EQ(cluster.phase(), Phase::kRunning);
}

TEST(Cluster, Section1_8_Item3_AnotherWorldSizeIsRefused) {
  Cluster cluster({.world = 8, .nodes = 2}, 0);
  EXPECT_EQ(refusal(cluster, node(0, 4, 7)),
            "it was started for a job of 7 ranks, but this scheduler's job has 8; give both the same");
  NodeReport other = node(0, 4, 8);
  other.nodes = 3;
  EXPECT_EQ(refusal(cluster, other),
            "it was started for a job of 3 nodes, but this scheduler's job has 2; give both the same");
  EXPECT_EQ(cluster.registered(), 0);
}

TEST(Cluster, ANodeIdIsTakenUntilItsNodeHasGone) {
  Cluster cluster({.world = 4}, 0);
  cluster.report(node(0, 2, 4), 0);
  NodeReport twin = node(0, 2, 4);
  twin.instance = 7;
  twin.host = "elsewhere";
  EXPECT_EQ(refusal(cluster, twin),
            "its id 'node0' is taken by a node on host0; give each node a --node-rank (or --node-id) of its own");
  cluster.disconnected("node0", 7, 10);  // the refused one's connection
  EXPECT_EQ(cluster.registered(), 2);
  cluster.disconnected("node0", 100, 10);
  EXPECT_EQ(refusal(cluster, twin), "");
}

TEST(Cluster, Section1_8_Item2_TheWindowClosesAndSaysWhoIsMissing) {
  Cluster cluster({.world = 8, .nodes = 2, .window_ms = 30'000}, 1'000);
  cluster.report(node(0, 4, 8), 1'000);
  NodeReport half = node(1, 2, 8);
  cluster.report(half, 25'000);
  cluster.report(node(0, 4, 8), 25'000);
  cluster.tick(30'999);
  EXPECT_EQ(cluster.phase(), Phase::kForming);
  cluster.tick(31'000);
  EXPECT_EQ(cluster.phase(), Phase::kOver);
  EXPECT_EQ(cluster.ending().exit_code, 3);
  EXPECT_EQ(cluster.ending().text,
            "waiting for 2 of 8 ranks when the window of 30.0 s closed: node 0 has 4 of 4, node 1 has 2 of 4");

  Cluster absent({.world = 8, .nodes = 2, .window_ms = 5'000}, 0);
  absent.report(node(1, 4, 8), 0);
  absent.tick(5'000);
  EXPECT_THAT(absent.ending().text, HasSubstr(": node 1 has 4 of 4, node 0 did not come"));
  Cluster empty({.world = 2, .window_ms = 5'000}, 0);
  empty.tick(5'000);
  EXPECT_THAT(empty.ending().text, HasSubstr("waiting for 2 of 2 ranks when the window of 5.0 s closed: nobody came"));
}

TEST(Cluster, Section1_8_Item5_ASilentNodeEndsTheJobUnlessHeartbeatsAreOff) {
  for (const int64_t silence : {10'000, 0}) {
    Cluster cluster({.world = 2, .silence_ms = silence}, 0);
    for (int i = 0; i < 2; ++i) cluster.report(node(i, 1, 2), 0);
    const NodeReport alive = after(node(0, 1, 2), cluster.view_of("node0"));
    for (int64_t now = 0; now <= 11'000; now += 1'000) {
      cluster.report(alive, now);
      cluster.tick(now);
    }
    EXPECT_EQ(cluster.phase(), silence > 0 ? Phase::kOver : Phase::kRunning);
    if (silence > 0) {
      EXPECT_EQ(cluster.ending().text, "node 1 ('node1' on host1), rank 1, has not been heard of for 11.0 s");
    }
  }
}

TEST(Cluster, AConnectionThatEndsIsForgivenForAMoment) {
  Cluster cluster({.world = 2}, 0);
  for (int i = 0; i < 2; ++i) cluster.report(node(i, 1, 2), 0);
  const NodeReport one = after(node(1, 1, 2), cluster.view_of("node1"));
  cluster.disconnected("node1", one.instance, 1'000);
  cluster.tick(3'900);
  EXPECT_EQ(cluster.report(one, 3'900).phase, Phase::kRunning);
  cluster.disconnected("node1", one.instance, 4'000);
  cluster.tick(7'100);
  EXPECT_EQ(cluster.phase(), Phase::kOver);
}

// A killed process takes its time to end, and the launcher of its host to see it: while ranks have not ended a cause is
// waited for, but not for ever.
TEST(Cluster, TheFirstCauseIsTheEndingAndAConsequenceOnlyWhenNoCauseShows) {
  const Ending lost_peer{.exit_code = 3, .rank = 0, .may_be_consequence = true, .text = "rank 1 is gone"};
  const Ending cause{.exit_code = 7, .rank = 1, .text = "rank 1 ended with exit code 7"};
  for (const auto& [cause_ms, end_ms, over_ms] :
       {std::tuple{400, -1, 400}, {4'500, -1, 4'500}, {-1, 150, 600}, {-1, -1, 5'100}}) {
    Cluster cluster({.world = 2, .settle_ms = 500, .most_settle_ms = 5'000}, 0);
    for (int i = 0; i < 2; ++i) cluster.report(node(i, 1, 2), 0);
    const NodeReport zero = after(node(0, 1, 2), cluster.view_of("node0"));
    const NodeReport one = after(node(1, 1, 2), cluster.view_of("node1"));
    cluster.report(failed(zero, lost_peer), 100);
    for (int now = 150; now <= over_ms; now += 50) {
      EXPECT_EQ(cluster.phase(), Phase::kRunning) << now;
      if (now == cause_ms) cluster.report(failed(one, cause), now);
      if (now == end_ms) cluster.report(ended(zero, lost_peer), now), cluster.report(ended(one), now);
      cluster.tick(now);
    }
    EXPECT_EQ(cluster.phase(), Phase::kOver);
    EXPECT_EQ(cluster.ending().exit_code, cause_ms > 0 ? 7 : 3);
    for (NodeReport told : {ended(zero), ended(one)}) {
      EXPECT_FALSE(cluster.everyone_knows());
      told.seen = cluster.version();
      cluster.report(told, 5'200);
    }
    EXPECT_TRUE(cluster.everyone_knows());
  }
}

TEST(Cluster, TheJobIsOverWhenAllNodesHaveEnded) {
  Cluster cluster({.world = 2}, 0);
  for (int i = 0; i < 2; ++i) cluster.report(node(i, 1, 2), 0);
  EXPECT_EQ(cluster.report(ended(after(node(0, 1, 2), cluster.view_of("node0"))), 5).phase, Phase::kRunning);
  cluster.tick(20'000);  // a node that has ended need not be heard of
  EXPECT_NE(cluster.ending().rank, 0);
  Cluster both({.world = 2}, 0);
  for (int i = 0; i < 2; ++i) both.report(node(i, 1, 2), 0);
  both.report(ended(after(node(0, 1, 2), both.view_of("node0"))), 5);
  const ClusterView view = both.report(ended(after(node(1, 1, 2), both.view_of("node1"))), 6);
  EXPECT_EQ(view.phase, Phase::kOver);
  EXPECT_EQ(view.ending.exit_code, 0);
  EXPECT_EQ(refusal(both, node(5, 1, 2)), "the job is over");
}

TEST(Cluster, ASignalToOneNodeIsToldToAll) {
  Cluster cluster({.world = 2}, 0);
  for (int i = 0; i < 2; ++i) cluster.report(node(i, 1, 2), 0);
  const uint64_t before = cluster.version();
  NodeReport one = after(node(1, 1, 2), cluster.view_of("node1"));
  one.interrupt = 2;
  cluster.report(one, 10);
  EXPECT_GT(cluster.version(), before);
  EXPECT_EQ(cluster.view_of("node0").interrupt, 2);
  cluster.report(ended(one), 20);
  cluster.report(ended(after(node(0, 1, 2), cluster.view_of("node0"))), 20);
  EXPECT_EQ(cluster.ending().exit_code, 130);
}

TEST(Cluster, NodesOfARunningJobKeepTheirPlacesUnderARestartedScheduler) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 30; ++round) {
    const int count = 2 + static_cast<int>(random() % 6);
    std::vector<NodeReport> nodes;
    for (int i = 0; i < count; ++i) nodes.push_back(node(i, 1 + i % 3, 0));
    int world = 0;
    for (const NodeReport& one : nodes) world += one.workers;
    for (NodeReport& one : nodes) one.world = world;
    Cluster before({.world = world}, 0);
    for (const NodeReport& one : nodes) before.report(one, 0);
    // One node may have missed what the others were told.
    const size_t untold = random() % nodes.size();
    std::vector<NodeReport> running;
    for (size_t i = 0; i < nodes.size(); ++i) {
      running.push_back(i == untold && round % 2 == 0 ? nodes[i] : after(nodes[i], before.view_of(nodes[i].node_id)));
    }
    std::ranges::shuffle(running, random);
    Cluster restarted({.world = world}, 0);
    for (const NodeReport& one : running) ASSERT_EQ(refusal(restarted, one), "");
    for (const NodeReport& one : nodes) {
      EXPECT_EQ(restarted.view_of(one.node_id).first_rank, before.view_of(one.node_id).first_rank);
      EXPECT_EQ(restarted.view_of(one.node_id).job, before.view_of(one.node_id).job);
      EXPECT_EQ(restarted.view_of(one.node_id).phase, Phase::kRunning);
    }
  }
}

TEST(Cluster, ANewcomerDoesNotTakeThePlaceOfANodeOfTheRunningJob) {
  Cluster before({.world = 4}, 0);
  for (int i = 0; i < 2; ++i) before.report(node(i, 2, 4), 0);
  Cluster restarted({.world = 4}, 0);
  restarted.report(node(5, 2, 4), 0);
  for (int i = 0; i < 2; ++i) {
    const std::string id = fmt::format("node{}", i);
    EXPECT_EQ(refusal(restarted, after(node(i, 2, 4), before.view_of(id))), "");
    if (i == 0) {
      EXPECT_THAT(refusal(restarted, node(5, 2, 4)), HasSubstr("it is none of its nodes"));
    }
  }
  EXPECT_EQ(restarted.phase(), Phase::kRunning);
  EXPECT_FALSE(restarted.has("node5"));
  EXPECT_THAT(refusal(restarted, node(5, 2, 4)), HasSubstr("no place"));
}

TEST(Cluster, ANewcomerMakesRoomForTheNodesOfTheRunningJob) {
  Cluster before({.world = 4}, 0);
  for (int i = 0; i < 2; ++i) before.report(node(i, 2, 4), 0);
  Cluster restarted({.world = 4}, 0);
  restarted.report(node(5, 3, 4), 0);
  EXPECT_EQ(refusal(restarted, after(node(1, 2, 4), before.view_of("node1"))), "");
  EXPECT_FALSE(restarted.has("node5"));
  EXPECT_EQ(refusal(restarted, after(node(0, 2, 4), before.view_of("node0"))), "");
  EXPECT_EQ(restarted.view_of("node1").first_rank, 2);
}

TEST(Cluster, ClaimsThatCannotAllBeTrueAreRefused) {
  NodeReport first = node(0, 2, 4);
  first.job = 5;
  first.first_rank = 0;
  NodeReport second = node(1, 2, 4);
  second.job = 5;
  second.first_rank = 1;
  Cluster cluster({.world = 4}, 0);
  cluster.report(first, 0);
  EXPECT_EQ(refusal(cluster, second), "it says it has ranks 1 to 2, but node 'node0' has ranks 0 to 1");
  second.first_rank = 3;
  EXPECT_EQ(refusal(cluster, second), "it says it has ranks 3 to 4 of 4");
  second.first_rank = 2;
  second.job = 6;
  EXPECT_EQ(refusal(cluster, second), "it is a node of another job than node 'node0', which came first");
}

NodeReport at_start(NodeReport report, int attempt) {
  report.attempt = attempt;
  report.instance += 1000 * static_cast<uint64_t>(attempt);
  return report;
}

TEST(Cluster, AFailedJobStartsAgainWhenItsNodesHaveComeAnew) {
  Cluster cluster({.world = 3, .restarts = 1}, 0);
  for (int i = 0; i < 3; ++i) cluster.report(node(i, 1, 3), 0);
  const ClusterView first = cluster.view_of("node1");
  cluster.report(failed(after(node(1, 1, 3), first), {.exit_code = 3, .rank = 1, .text = "rank 1 was killed"}), 10);
  EXPECT_EQ(cluster.phase(), Phase::kForming);
  const ClusterView told = cluster.report(after(node(0, 1, 3), first), 20);
  EXPECT_TRUE(told.phase == Phase::kOver && told.again && told.attempt == 1);
  EXPECT_EQ(told.ending.text, "rank 1 was killed");
  for (const int i : {2, 0, 1}) EXPECT_EQ(refusal(cluster, at_start(node(i, 1, 3), 1), 30), "");
  EXPECT_EQ(cluster.phase(), Phase::kRunning);
  EXPECT_EQ(cluster.view_of("node2").first_rank, 2);
  // Not more often than it may be.
  cluster.report(failed(at_start(node(1, 1, 3), 1), {.exit_code = 3, .text = "again"}), 40);
  EXPECT_EQ(cluster.phase(), Phase::kOver);
  EXPECT_FALSE(cluster.view_of("node1").again);
}

TEST(Cluster, AMistakeOfTheCallerOrASignalIsNoReasonToStartAgain) {
  for (const Ending& ending :
       {Ending{.exit_code = 2, .text = "no such file"}, Ending{.exit_code = 130, .interrupt = 2, .text = "x"}}) {
    Cluster cluster({.world = 1, .restarts = 5}, 0);
    const ClusterView view = cluster.report(node(0, 1, 1), 0);
    NodeReport report = failed(after(node(0, 1, 1), view), ending);
    report.interrupt = ending.interrupt;
    cluster.report(report, 1);
    cluster.report(ended(report, ending), 2);
    EXPECT_EQ(cluster.phase(), Phase::kOver);
  }
}

TEST(Cluster, WithFewerRanksItStartsWhenThoseThatWereNotLostAreThere) {
  const auto of_range = [](int rank) {
    NodeReport report = node(rank, 1, 3);
    report.min_world = 2;
    return report;
  };
  Cluster cluster({.world = 3, .min_world = 2, .restarts = 2, .last_call_ms = 5'000, .silence_ms = 1'000}, 0);
  cluster.report(of_range(0), 0);
  cluster.report(of_range(1), 0);
  cluster.tick(4'000);
  EXPECT_EQ(cluster.phase(), Phase::kForming);  // a third may come
  cluster.report(of_range(2), 4'500);
  ASSERT_EQ(cluster.phase(), Phase::kForming) << "two were silent for too long";
  cluster.report(of_range(0), 4'500);
  cluster.report(of_range(1), 4'500);
  ASSERT_EQ(cluster.phase(), Phase::kRunning);
  const ClusterView view = cluster.view_of("node0");
  EXPECT_EQ(view.world, 3);
  for (const int i : {0, 1}) cluster.report(after(of_range(i), cluster.view_of(fmt::format("node{}", i))), 5'400);
  cluster.tick(5'900);
  EXPECT_EQ(cluster.phase(), Phase::kForming);
  cluster.report(at_start(of_range(0), 1), 6'000);
  EXPECT_EQ(cluster.phase(), Phase::kForming);
  EXPECT_EQ(cluster.report(at_start(of_range(1), 1), 6'100).world, 2);
  EXPECT_THAT(refusal(cluster, at_start(of_range(2), 1), 6'200), HasSubstr("the job is running with 2 ranks"));
}

TEST(Cluster, TenThousandNodesRegister) {
  constexpr int kNodes = 10'000;
  std::vector<NodeReport> nodes;
  for (int i = 0; i < kNodes; ++i) nodes.push_back(node(i, 1, kNodes));
  std::ranges::shuffle(nodes, std::mt19937(1));
  const double start = now_s();
  Cluster cluster({.world = kNodes, .nodes = kNodes}, 0);
  for (const NodeReport& one : nodes) ASSERT_EQ(refusal(cluster, one), "");
  std::printf("10,000 registrations in %.0f ms\n", 1e3 * (now_s() - start));
  EXPECT_EQ(cluster.phase(), Phase::kRunning);
  for (int i = 0; i < kNodes; ++i) EXPECT_EQ(cluster.view_of(fmt::format("node{}", i)).first_rank, i);
}

// Whatever comes in whatever order: ranks are never given twice, a job that is over stays over, and nothing is thrown.
TEST(Cluster, RandomEventsKeepTheRules) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const int world = 1 + static_cast<int>(random() % 8);
    Cluster cluster({.world = world, .window_ms = 20'000, .silence_ms = 5'000}, 0);
    Phase before = Phase::kForming;
    for (int64_t now = 0; now < 60'000 && cluster.phase() != Phase::kOver;
         now += static_cast<int64_t>(random() % 2'000)) {
      const int which = static_cast<int>(random() % 6);
      NodeReport one = node(which, 1 + static_cast<int>(random() % 2), random() % 20 == 0 ? world + 1 : world);
      if (random() % 4 == 0) one.node_rank = -1;
      if (random() % 10 == 0) one.instance += random() % 2;
      if (cluster.phase() == Phase::kRunning && cluster.has(one.node_id))
        one = after(one, cluster.view_of(one.node_id));
      switch (random() % 12) {
        case 0:
          cluster.disconnected(one.node_id, one.instance, now);
          break;
        case 1:
          cluster.report(ended(one), now);
          break;
        case 2:
          cluster.report(failed(one, {.exit_code = 5, .may_be_consequence = random() % 2 == 0, .text = "x"}), now);
          break;
        case 3:
          cluster.tick(now);
          break;
        default:
          cluster.report(one, now);
      }
      EXPECT_GE(cluster.phase(), before);
      before = cluster.phase();
      EXPECT_LE(cluster.registered(), world);
    }
    if (cluster.phase() == Phase::kOver && cluster.ending().exit_code != 0) EXPECT_NE(cluster.ending().text, "");
  }
}

}  // namespace
}  // namespace trireme::launch::cluster_test
