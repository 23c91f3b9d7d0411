#include "trireme/exec/run/communication_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::communication_time_test {
namespace {

using std::chrono::nanoseconds;

Interval at(int64_t begin, int64_t end) {
  const std::chrono::steady_clock::time_point zero{};
  return {zero + nanoseconds(begin), zero + nanoseconds(end)};
}

double ns(int64_t count) {
  return std::chrono::duration<double>(nanoseconds(count)).count();
}

TEST(CommunicationTime, is_zero_without_communication) {
  const CommunicationTime time = communication_time({}, {});
  EXPECT_EQ(time.busy_s, 0);
  EXPECT_EQ(time.exposed_s, 0);
  EXPECT_EQ(time.hidden_percent(), 0);
}

// Started at 10 in 2 ns, under way until 50, waited for from 40 to 51.
TEST(CommunicationTime, what_computing_covers_is_hidden) {
  const CommunicationTime time = communication_time(std::vector{at(10, 50)}, std::vector{at(10, 12), at(40, 51)});
  EXPECT_EQ(time.busy_s, ns(41));
  EXPECT_EQ(time.exposed_s, ns(13));
  EXPECT_DOUBLE_EQ(time.hidden_s(), ns(28));
  EXPECT_DOUBLE_EQ(time.hidden_percent(), 100 * 28.0 / 41);
}

TEST(CommunicationTime, operations_side_by_side_count_once) {
  const CommunicationTime time = communication_time(std::vector{at(0, 100), at(10, 40), at(90, 120)},
                                                    std::vector{at(0, 1), at(10, 11), at(90, 91)});
  EXPECT_EQ(time.busy_s, ns(120));
  EXPECT_EQ(time.exposed_s, ns(3));
}

TEST(CommunicationTime, unpacking_after_the_end_is_busy_and_exposed) {
  const CommunicationTime time = communication_time(std::vector{at(0, 10)}, std::vector{at(0, 1), at(60, 75)});
  EXPECT_EQ(time.busy_s, ns(25));
  EXPECT_EQ(time.exposed_s, ns(16));
}

// Counted nanosecond by nanosecond.
TEST(CommunicationTime, is_the_length_of_the_union) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 draw(seed);
    std::vector<Interval> flights, stops;
    std::vector<char> busy(400, 0), exposed(400, 0);
    int64_t now = 0;
    for (uint32_t i = draw() % 8; i > 0; --i) {
      now += draw() % 20;
      flights.push_back(at(now, now + static_cast<int64_t>(draw() % 60)));
    }
    int64_t compute = 0;
    for (uint32_t i = draw() % 10; i > 0; --i) {
      const int64_t begin = compute + draw() % 20;
      compute = begin + draw() % 15;
      stops.push_back(at(begin, compute));
    }
    const auto mark = [](std::vector<char>& marks, const Interval& interval) {
      const auto first = std::chrono::nanoseconds(interval.begin.time_since_epoch()).count();
      const auto end = std::chrono::nanoseconds(interval.end.time_since_epoch()).count();
      std::fill(marks.begin() + first, marks.begin() + end, 1);
    };
    for (const Interval& flight : flights) mark(busy, flight);
    for (const Interval& stop : stops) {
      mark(busy, stop);
      mark(exposed, stop);
    }
    const CommunicationTime time = communication_time(flights, stops);
    EXPECT_EQ(time.busy_s, ns(std::count(busy.begin(), busy.end(), 1)));
    EXPECT_EQ(time.exposed_s, ns(std::count(exposed.begin(), exposed.end(), 1)));
    EXPECT_LE(time.exposed_s, time.busy_s);
  }
}

// One sum over the ranks, with computing that needs it and computing that does not.
ExecutionPlan plan_of(int64_t ranks) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 512}}, Role::kData));
  graph.add_output("sum", reduce_sum(x, {0}).id());
  graph.add_output("other", exp(x).id());
  return plan_execution(run_passes(partition(graph, data_parallel(graph, ranks))));
}

TEST(CommunicationTime, of_one_rank_is_zero) {
  const ExecutionPlan plan = plan_of(1);
  Executor executor(plan, {});
  executor.run();
  EXPECT_EQ(executor.communication().busy_s, 0);
  EXPECT_EQ(executor.communication().exposed_s, 0);
}

// The first rank cannot end its sum before the second has begun its step, which does so only when the first is under
// way: all that time is busy on the first, and within its step.
TEST(CommunicationTime, of_several_ranks_lies_within_their_steps) {
  const ExecutionPlan plan = plan_of(2);
  std::atomic<bool> first_runs{false};
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    Executor executor(plan, {.world = &world});
    for (int step = 0; step < 5; ++step) {
      std::ranges::fill(executor.input("x").as<float>(), 1.F);
      if (world.rank() == 1) first_runs.wait(false);
      const auto begin = std::chrono::steady_clock::now();
      if (world.rank() == 0) {
        first_runs = true;
        first_runs.notify_one();
      }
      executor.run();
      const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begin;
      const CommunicationTime time = executor.communication();
      EXPECT_GT(time.exposed_s, 0);
      EXPECT_LE(time.exposed_s, time.busy_s);
      EXPECT_LE(time.busy_s, whole.count());
      EXPECT_EQ(executor.output("sum").as<float>()[0], 8);
      world.all().barrier().wait();
      if (world.rank() == 0) first_runs = false;
      world.all().barrier().wait();
    }
  });
}

}  // namespace
}  // namespace trireme::communication_time_test
