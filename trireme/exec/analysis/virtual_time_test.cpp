#include "trireme/exec/analysis/virtual_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/exec/analysis/hand_plan_for_tests.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::virtual_time_test {
namespace {

using testing::DoubleEq;
using testing::HasSubstr;
using testing::IsEmpty;

// Seconds of every action of a lane alike.
struct LaneSeconds {
  double compute = 1, comm = 0, message = 0;
};

std::vector<double> seconds_of(const ExecutionPlan& plan, const LaneSeconds& each) {
  std::vector<double> out;
  for (const Action& action : plan.actions) {
    out.push_back(action.lane == Lane::kCompute ? each.compute : action.lane == Lane::kComm ? each.comm : each.message);
  }
  return out;
}

VirtualTime timed(const std::vector<ExecutionPlan>& plans, const LaneSeconds& each, VirtualTimeOptions options = {}) {
  std::vector<const ExecutionPlan*> crews;
  for (const ExecutionPlan& plan : plans) {
    crews.push_back(&plan);
    options.seconds.push_back(seconds_of(plan, each));
  }
  EXPECT_THAT(check_communication(crews), IsEmpty());
  VirtualTime out = virtual_time(crews, options);
  for (const RankTime& rank : out.ranks) {  // no moment is lost or counted twice
    double sum = rank.late_s + rank.waiting_s + rank.lane(Lane::kCompute).busy_s;
    for (const LaneTime& lane : rank.lanes) sum += lane.exposed_s;
    EXPECT_NEAR(sum, rank.end_s, 1e-9 * (1 + rank.end_s));
    for (const LaneTime& lane : rank.lanes) EXPECT_LE(lane.exposed_s, out.makespan_s);
  }
  return out;
}

// -- pipelines ------------------------------------------------------------------------------------

// A stage's units in their order: +m is the forward pass of micro-batch m (from 1), -m its backward pass.
using Units = std::vector<int>;

Units all_forward_first(int parts) {
  Units out;
  for (int part = 1; part <= parts; ++part) out.push_back(part);
  for (int part = 1; part <= parts; ++part) out.push_back(-part);
  return out;
}

Units one_forward_one_backward(int stage, int stages, int parts) {
  Units out;
  int forward = 1, backward = 1;
  for (; forward <= std::min(parts, stages - 1 - stage); ++forward) out.push_back(forward);
  while (backward <= parts) {
    if (forward <= parts) out.push_back(forward++);
    out.push_back(-backward++);
  }
  return out;
}

ExecutionPlan stage_plan(int stage, int stages, const Units& units, const std::string& mesh = "") {
  HandPlan plan(mesh, stage, stages);
  for (const int unit : units) {
    const int back = unit < 0 ? 1 : -1;  // where what it takes comes from
    const bool takes = stage + back >= 0 && stage + back < stages;
    const bool gives = stage - back >= 0 && stage - back < stages;
    const int tag = 2 * std::abs(unit) + (unit < 0 ? 1 : 0);
    const std::vector<int> in = takes ? std::vector<int>{plan.recv(stage + back, tag)} : std::vector<int>{};
    const int made = plan.compute(in, fmt::format("{}{}.{}", unit < 0 ? 'B' : 'F', stage, std::abs(unit) - 1));
    if (gives) plan.send(made, stage - back, tag);
  }
  return plan.finish();
}

std::vector<ExecutionPlan> gpipe(int stages, int parts) {
  std::vector<ExecutionPlan> out;
  for (int stage = 0; stage < stages; ++stage) out.push_back(stage_plan(stage, stages, all_forward_first(parts)));
  return out;
}

std::vector<ExecutionPlan> by_turns(int stages, int parts, const std::string& mesh = "") {
  std::vector<ExecutionPlan> out;
  for (int stage = 0; stage < stages; ++stage) {
    out.push_back(stage_plan(stage, stages, one_forward_one_backward(stage, stages, parts), mesh));
  }
  return out;
}

// The bubble is stages - 1 units in each direction: (4 + 3) * 2 and (8 + 3) * 2 slots.
TEST(Pipelines, of_four_stages_take_14_slots_for_4_micro_batches_and_22_for_8) {
  EXPECT_THAT(timed(gpipe(4, 4), {}).makespan_s, DoubleEq(14));
  EXPECT_THAT(timed(gpipe(4, 8), {}).makespan_s, DoubleEq(22));
  EXPECT_THAT(timed(by_turns(4, 4), {}).makespan_s, DoubleEq(14));
  EXPECT_THAT(timed(by_turns(4, 8), {}).makespan_s, DoubleEq(22));
  EXPECT_THAT(timed(by_turns(4, 8), {}).idle_share(), DoubleEq(1 - 16.0 / 22));
}

//   slot     1    2    3    4    5    6    7    8
//   stage 0  F0   F1             B0   F2*
//   stage 1       F0   B0   F1 ...
TEST(Pipelines, of_two_stages_run_by_the_timetable_on_paper) {
  const VirtualTime time = timed(by_turns(2, 3), {});
  const auto units = [&](size_t stage) {
    const ExecutionPlan plan = by_turns(2, 3)[stage];
    std::vector<std::pair<std::string, double>> out;
    for (size_t i = 0; i < plan.actions.size(); ++i) {
      if (plan.actions[i].lane == Lane::kCompute) out.emplace_back(plan.actions[i].scope, time.spans[stage][i].begin_s);
    }
    return out;
  };
  using Begins = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(units(0), (Begins{{"F0.0", 0}, {"F0.1", 1}, {"B0.0", 3}, {"F0.2", 4}, {"B0.1", 5}, {"B0.2", 7}}));
  EXPECT_EQ(units(1), (Begins{{"F1.0", 1}, {"B1.0", 2}, {"F1.1", 3}, {"B1.1", 4}, {"F1.2", 5}, {"B1.2", 6}}));
  EXPECT_THAT(time.makespan_s, DoubleEq(8));
  EXPECT_THAT(time.ranks[0].waiting_s, DoubleEq(2));  // for what is not yet there: nothing moves, messages take no time
  EXPECT_THAT(time.ranks[0].lane(Lane::kMessage).exposed_s, DoubleEq(0));
}

// Half a slot for each message: it passes 3 borders there and 3 back.
TEST(Pipelines, messages_take_their_time_on_the_way_there_and_back) {
  const VirtualTime time = timed(by_turns(4, 1), {.message = 0.5});
  EXPECT_THAT(time.makespan_s, DoubleEq(8 + 6 * 0.5));
  const RankTime& first = time.ranks[0];
  EXPECT_THAT(first.lane(Lane::kMessage).busy_s, DoubleEq(0.5));     // it sends one
  EXPECT_THAT(first.lane(Lane::kMessage).exposed_s, DoubleEq(0.5));  // and waits while one comes,
  EXPECT_THAT(first.waiting_s, DoubleEq(8 + 3 - 1 - 1 - 0.5));       // after waiting for it to be sent
}

TEST(Pipelines, a_message_leaves_after_those_that_its_rank_sent_before) {
  HandPlan first("", 0, 2), second("", 1, 2);
  const int x = first.compute({});
  first.send(x, 1, 0);
  first.send(x, 1, 1);
  second.recv(0, 0);
  second.compute({second.recv(0, 1)});
  const VirtualTime time = timed({first.finish(), second.finish()}, {.message = 3});
  EXPECT_THAT(time.spans[1][2].begin_s, DoubleEq(1 + 3 + 3));
  EXPECT_THAT(time.ranks[0].end_s, DoubleEq(7));  // a step ends when what it sent has been taken
}

// Three of four stages wait for the one that is slow, which never waits once it has begun.
TEST(Pipelines, the_slowest_stage_sets_the_pace) {
  const VirtualTime time = timed(by_turns(4, 8), {}, {.slowness = {1, 3, 1, 1}});
  EXPECT_THAT(time.ranks[1].lane(Lane::kCompute).busy_s, DoubleEq(48));
  EXPECT_GE(time.makespan_s, 1 + 48);
  EXPECT_LE(time.makespan_s, 22 * 3);
  EXPECT_GT(time.idle_share(), timed(by_turns(4, 8), {}).idle_share());
}

TEST(Pipelines, a_rank_that_begins_late_delays_its_like_in_other_crews_and_nobody_else) {
  const VirtualTime time = timed(by_turns(4, 4, "dp=2"), {}, {.late_s = {0, 0, 0, 0, 0, 5, 0, 0}});
  for (const size_t rank : std::vector<size_t>{0, 2, 4, 6}) EXPECT_LE(time.ranks[rank].end_s, 14);
  EXPECT_THAT(time.ranks[1].end_s, DoubleEq(14 + 3));  // the third stage would have waited 2 of the 5
  EXPECT_THAT(time.makespan_s, DoubleEq(17));
}

// -- collectives ----------------------------------------------------------------------------------

// A sum of 4 beside 3 of computing that does not need it, and 1 that does.
ExecutionPlan overlapped(const std::string& mesh = "dp=2") {
  HandPlan plan(mesh, 0, 1);
  const int sum = plan.all_reduce(plan.compute({}), {0});
  for (int i = 0; i < 3; ++i) plan.compute({});
  plan.compute({sum});
  return plan.finish();
}

TEST(Collectives, hide_under_what_does_not_wait_for_them) {
  const VirtualTime time = timed({overlapped()}, {.comm = 4});
  EXPECT_THAT(time.makespan_s, DoubleEq(1 + 4 + 1));
  for (const RankTime& rank : time.ranks) {
    EXPECT_THAT(rank.lane(Lane::kComm).busy_s, DoubleEq(4));
    EXPECT_THAT(rank.lane(Lane::kComm).exposed_s, DoubleEq(1));
    EXPECT_THAT(rank.waiting_s, DoubleEq(0));
  }
  EXPECT_THAT(time.spans[0][1].end_s, DoubleEq(5));
}

TEST(Collectives, slow_computing_down_where_they_need_its_core) {
  VirtualTime time = timed({overlapped()}, {.comm = 4}, {.overlap_slowdown = 0.5});
  EXPECT_THAT(time.makespan_s, DoubleEq(1 + 4 + 1 + 1));  // two of the three beside the sum
  EXPECT_THAT(time.ranks[0].lane(Lane::kCompute).busy_s, DoubleEq(5));
  EXPECT_THAT(time.ranks[0].lane(Lane::kComm).exposed_s, DoubleEq(2));
  EXPECT_THAT(time.spans[0][1].exposed_s, DoubleEq(2));
  EXPECT_THAT(time.spans[0][2].end_s, DoubleEq(3));
  time = timed({overlapped()}, {.comm = 4}, {.overlap_slowdown = 1});
  EXPECT_THAT(time.makespan_s, DoubleEq(1 + 4 + 3 + 1));
  // It begins when the first rank has nothing left to do beside it.
  time = timed({overlapped()}, {.comm = 4}, {.late_s = {0, 10}, .overlap_slowdown = 0.5});
  EXPECT_THAT(time.ranks[0].waiting_s, DoubleEq(7));
  EXPECT_THAT(time.ranks[0].lane(Lane::kComm).exposed_s, DoubleEq(4));
  EXPECT_THAT(time.makespan_s, DoubleEq(10 + 7));
}

// A rank that sends loses time, not the one that the message is for.
TEST(Messages, slow_down_who_sends_them) {
  const std::vector<ExecutionPlan> plans = by_turns(2, 4);
  const VirtualTime alone = timed(plans, {.message = 0.5});
  const VirtualTime slowed = timed(plans, {.message = 0.5}, {.overlap_slowdown = 1});
  EXPECT_GT(slowed.makespan_s, alone.makespan_s);
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_THAT(slowed.ranks[rank].lane(Lane::kCompute).busy_s, DoubleEq(8));
  EXPECT_LE(slowed.makespan_s, alone.makespan_s + 2 * 4 * 0.5);
}

TEST(Collectives, begin_when_the_last_of_their_group_has_come) {
  const VirtualTime time = timed({overlapped()}, {.comm = 4}, {.late_s = {0, 10}});
  EXPECT_THAT(time.makespan_s, DoubleEq(16));
  EXPECT_THAT(time.ranks[0].end_s, DoubleEq(16));
  EXPECT_THAT(time.ranks[0].waiting_s, DoubleEq(7));  // from 4 until the other comes at 11
  EXPECT_THAT(time.ranks[0].lane(Lane::kComm).exposed_s, DoubleEq(4));
  EXPECT_THAT(time.ranks[1].lane(Lane::kComm).exposed_s, DoubleEq(1));
}

TEST(Collectives, of_one_lane_run_one_after_the_other_also_over_other_ranks) {
  HandPlan plan("dp=2,tp=2", 0, 1);
  const int x = plan.compute({});
  plan.all_reduce(x, {0});
  plan.all_reduce(x, {1});
  const VirtualTime time = timed({plan.finish()}, {.comm = 2}, {.slowness = {1, 1, 1, 5}});
  // Ranks 1 and 3 sum over dp from 5 to 7, 0 and 2 from 1 to 3; then over tp: 2 waits for 3, 0 for 1.
  for (const RankTime& rank : time.ranks) EXPECT_THAT(rank.end_s, DoubleEq(9));
}

TEST(Collectives, of_ranks_listed_by_number_leave_the_others_alone) {
  HandPlan hand("dp=4", 0, 1);
  const int x = hand.compute({});
  hand.compute({hand.all_reduce(x, {0, 1})});
  ExecutionPlan plan = hand.finish();
  plan.actions[1].attrs = Attrs::of(CollectiveAttrs{.size = 2, .ranks = {3, 1}});
  const VirtualTime time = timed({plan}, {.comm = 4});
  EXPECT_THAT(time.ranks[0].end_s, DoubleEq(2));
  EXPECT_THAT(time.ranks[1].end_s, DoubleEq(6));
  EXPECT_THAT(time.ranks[3].end_s, DoubleEq(6));
}

// -- memory and rates -----------------------------------------------------------------------------

ExecutionPlan trained(int64_t ranks) {
  Graph graph("small");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {64, 128}}, Role::kData));
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {128, 256}}, Role::kParameter));
  const Tensor y = gelu(matmul(x, w));
  graph.add_output("w", sub(w, scale(linear_weight_grad(x, y), 0.1)).id(), w.id());
  graph.add_output("loss", mean(square(y)).id());
  return plan_execution(run_passes(partition(graph, data_parallel(graph, ranks))));
}

TEST(VirtualTime, spans_say_how_long_compute_waited_while_each_moved) {
  const std::vector<ExecutionPlan> plans{trained(2)};
  const VirtualTime time = timed(plans, {.comm = 2});
  double exposed_s = 0;
  for (const ActionSpan& span : time.spans[0]) {
    EXPECT_LE(span.exposed_s, span.end_s - span.begin_s + 1e-9);
    exposed_s += span.exposed_s;
  }
  EXPECT_GT(exposed_s, 0);
  EXPECT_NEAR(exposed_s, time.ranks[0].lane(Lane::kComm).exposed_s, 1e-9);
}

TEST(LiveBytes, are_most_where_the_plan_says) {
  const ExecutionPlan plan = trained(2);
  const std::vector<ExecutionPlan> plans{plan};
  const std::vector<LiveBytes> bytes = live_bytes(plan, timed(plans, {.comm = 2}).spans[0]);
  int64_t most = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    most = std::max(most, bytes[i].bytes);
    EXPECT_EQ(std::accumulate(bytes[i].kinds.begin(), bytes[i].kinds.end(), int64_t{0}), bytes[i].bytes);
    if (i > 0) EXPECT_GE(bytes[i].at_s, bytes[i - 1].at_s);
  }
  EXPECT_EQ(most, plan.arena().lower_bound);
}

TEST(ActionSeconds, follow_the_rates) {
  const ExecutionPlan plan = trained(2);
  Machine machine = Machine::this_host();
  machine.flops_per_s = {{"f32", 1e9}};
  machine.achievable = 1;
  machine.memory_bytes_per_s = 1e12;
  const Rates rates{{.link = {.latency_s = 1e-3, .bytes_per_s = 1e6}, .step_s = 0}, machine};
  const std::vector<double> seconds = action_seconds(plan, rates);
  bool has_sum = false;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Action& action = plan.actions[i];
    if (action.op->name == "matmul") EXPECT_THAT(seconds[i], DoubleEq(2.0 * 32 * 128 * 256 / 1e9));
    if (action.op->name != "all_reduce") continue;
    has_sum = true;
    int64_t bytes = 0;
    for (const int id : action.in) bytes += plan.values[static_cast<size_t>(id)].type.bytes();
    EXPECT_NEAR(seconds[i], 2e-3 + static_cast<double>(bytes) / 1e6, 1e-12);  // half of them, there and back
  }
  EXPECT_TRUE(has_sum);
}

// Of calls that are alike one may run on the device and one on the host.
TEST(ActionSeconds, go_by_the_lane) {
  ExecutionPlan plan = trained(2);
  const auto on_device =
      std::ranges::find_if(plan.actions, [](const Action& action) { return action.op->name == "matmul"; });
  ASSERT_NE(on_device, plan.actions.end());
  const auto at = static_cast<size_t>(on_device - plan.actions.begin());
  Action on_host = *on_device;
  on_host.lane = Lane::kHost;
  plan.actions.push_back(std::move(on_host));
  Machine machine = Machine::this_host();
  machine.flops_per_s = {{"f32", 1e9}};
  machine.achievable = 1;
  machine.memory_bytes_per_s = machine.host_memory_bytes_per_s = 1e12;
  machine.host_flops_per_s = 1e8;
  const std::vector<double> seconds = action_seconds(plan, {{.step_s = 0}, machine});
  EXPECT_THAT(seconds.back(), DoubleEq(10 * seconds[at]));
}

TEST(ActionSeconds, a_message_takes_the_link_that_joins_its_crews) {
  HandPlan hand("dp=2", 1, 3, {DType::kF32, {250}});
  const int x = hand.compute({});
  hand.send(x, 0, 0);
  hand.send(x, 2, 0);
  Machine machine = Machine::this_host();
  machine.levels = {{"host", 4, 1e-6, 1e6}, {"rack", 6, 1e-3, 1e3}};
  const std::vector<double> seconds = action_seconds(hand.finish(), {{.step_s = 0}, machine});
  EXPECT_THAT(seconds[1], DoubleEq(1e-6 + 1e-3));
  EXPECT_THAT(seconds[2], DoubleEq(1e-6 + 1e-3));
  HandPlan far("dp=2", 0, 3, {DType::kF32, {250}});
  far.send(far.compute({}), 2, 0);
  EXPECT_THAT(action_seconds(far.finish(), {{.step_s = 0}, machine})[1], DoubleEq(1e-3 + 1));
}

// -- size and refusals ----------------------------------------------------------------------------

// All of a step of 10,000 ranks: 6,000 actions, every third a sum over ten or over a thousand of them.
TEST(VirtualTime, of_ten_thousand_ranks_is_a_matter_of_additions) {
  HandPlan hand("dp=1000,tp=10", 0, 1);
  int x = hand.compute({});
  const std::vector<int> dp = parse_mesh("dp=1000,tp=10").find("dp"), tp = parse_mesh("dp=1000,tp=10").find("tp");
  for (int i = 0; i < 2000; ++i) {
    const std::vector<int>& axes = i % 2 == 0 ? tp : dp;
    const int sum = hand.all_reduce(x, {axes.begin(), axes.end()});
    x = hand.compute({});
    x = hand.compute({sum});
  }
  std::vector<double> slowness(10'000, 1);
  slowness[4321] = 1.5;
  const VirtualTime time = timed({hand.finish()}, {.compute = 1, .comm = 0.5}, {.slowness = slowness});
  EXPECT_EQ(time.ranks.size(), 10'000U);
  EXPECT_THAT(time.makespan_s, DoubleEq(1.5 * 4001));
}

TEST(VirtualTime, what_does_not_belong_together_is_refused) {
  const ExecutionPlan plan = overlapped();
  const ExecutionPlan* const crews[] = {&plan};
  const auto error = [&](const VirtualTimeOptions& options) -> std::string {
    try {
      virtual_time(crews, options);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error({}), HasSubstr("virtual_time: 1 plans and durations of 0"));
  EXPECT_THAT(error({.seconds = {{1, 2}}}), HasSubstr("with 6 actions and 2 durations"));
  EXPECT_THAT(error({.seconds = {seconds_of(plan, {})}, .late_s = {1}}), HasSubstr("1 figures for 2 ranks"));
}

}  // namespace
}  // namespace trireme::virtual_time_test
