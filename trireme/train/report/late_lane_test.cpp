#include "trireme/train/report/late_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/nn/optimizer.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/graphs/step.h"

namespace trireme::late_lane_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Compiled compiled_with(std::optional<Machine> machine, const std::vector<HomeRule>& homes) {
  Graph graph("one layer");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {4, 64}}, Role::kData));
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {64, 64}}, Role::kParameter));
  graph.add_output("loss", mean(square(matmul(x, w))).id());
  CompileOptions options;
  options.parallel.homes = homes;
  options.parallel.communication.machine = std::move(machine);
  return compile(std::move(graph), options);
}

Machine slow_machine() {
  return {.memory_bytes_per_s = 1e6, .disk_bytes_per_s = 1e5, .flops_per_s = {{"f32", 1e7}}};
}

TEST(MissedPrediction, names_the_lane_that_takes_longer_than_it_should) {
  const Compiled made = compiled_with(slow_machine(), {parse_home_rule("w = disk")});
  const ExecutionPlan* const plan = &made.plan();
  const std::vector<double> seconds = action_seconds(*plan, made.rates);
  const VirtualTime time = virtual_time({&plan, 1}, {.seconds = {seconds}});
  const auto said = [&](double more_load_s, double more_compute_s) {
    std::vector<ActionTime> times;
    for (size_t i = 0; i < plan->actions.size(); ++i) {
      const Lane lane = plan->actions[i].lane;
      times.push_back({plan->actions[i].op->name, "", lane, 2 * (in_background(lane) ? 0 : seconds[i])});
    }
    times.push_back({"move", "", Lane::kLoad, 2 * (time.ranks[0].lane(Lane::kLoad).exposed_s + more_load_s)});
    times.push_back({"matmul", "", Lane::kCompute, 2 * more_compute_s});
    return missed_prediction(
        made, {.times = times, .count = 2, .seconds = 2 * (time.makespan_s + more_load_s + more_compute_s)});
  };
  EXPECT_EQ(said(0, 0), "");
  EXPECT_EQ(said(0.1 * time.makespan_s, 0), "");
  EXPECT_THAT(said(0.5 * time.makespan_s, 0), AllOf(HasSubstr("50 % more than"), HasSubstr("the lane 'load' is late")));
  EXPECT_THAT(said(1.5 * time.makespan_s, 0), HasSubstr("s, 2.5 times the "));
  EXPECT_THAT(said(117 * time.makespan_s, 0), HasSubstr("s, 118 times the "));
  EXPECT_THAT(said(0.1 * time.makespan_s, 0.4 * time.makespan_s), HasSubstr("the lane 'compute' is late"));
}

TEST(MissedPrediction, is_not_said_where_nothing_is_measured_or_nothing_moves) {
  const MeasuredSteps steps{.times = {}, .count = 2, .seconds = 2e6};
  EXPECT_EQ(missed_prediction(compiled_with({}, {parse_home_rule("w = disk")}), steps), "");
  EXPECT_EQ(missed_prediction(compiled_with(slow_machine(), {}), steps), "");
}

TEST(MissedPrediction, says_that_ranks_share_the_hosts_cores) {
  const Compiled made = compiled_with(slow_machine(), {parse_home_rule("w = disk")});
  const auto said = [&](int64_t ranks, int64_t threads) {
    return missed_prediction(made, {.times = {}, .count = 1, .seconds = 1e6, .ranks_here = ranks, .threads = threads});
  };
  EXPECT_THAT(said(1, 1), testing::Not(HasSubstr("share")));
  EXPECT_THAT(said(100'000, 1), HasSubstr("; 100000 threads of 100000 ranks share the "));
  EXPECT_THAT(said(1, 100'000), HasSubstr("; 100000 threads of 1 rank share the "));
}

// Without a machine computing takes what it took, so that only moves can be late.
TEST(MissedPrediction, of_moves_is_said_where_nobody_names_a_machine) {
  const Compiled made = compiled_with({}, {parse_home_rule("w = disk")});
  std::vector<ActionTime> times;
  for (const Action& action : made.plan().actions)
    times.push_back({action.op->name, "", action.lane, action.lane == Lane::kCompute ? 1.0 : 0.0});
  const double computed_s = static_cast<double>(std::ranges::count(made.plan().actions, Lane::kCompute, &Action::lane));
  const auto said = [&](double load_s, double disk_bytes_per_s) {
    for (ActionTime& time : times) time.seconds = time.lane == Lane::kLoad ? load_s : time.seconds;
    return missed_prediction(
        made, {.times = times, .count = 1, .seconds = computed_s + load_s, .disk_bytes_per_s = disk_bytes_per_s});
  };
  EXPECT_EQ(said(0, 1e12), "");
  EXPECT_THAT(said(computed_s, 1e12), AllOf(HasSubstr("with the time that computing took; the lane 'load' is late")));
  EXPECT_EQ(said(64 * 64 * 4 / 10.0, 10), "") << "a disk of which that is known";
}

}  // namespace
}  // namespace trireme::late_lane_test
