#include "trireme/train/report/late_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/virtual_time.h"
#include "trireme/nn/optimizer.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/step.h"

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
    return missed_prediction(made, times, 2, 2 * (time.makespan_s + more_load_s + more_compute_s));
  };
  EXPECT_EQ(said(0, 0), "");
  EXPECT_EQ(said(0.1 * time.makespan_s, 0), "");
  EXPECT_THAT(said(0.5 * time.makespan_s, 0), AllOf(HasSubstr("50 % more than"), HasSubstr("the lane 'load' is late")));
  EXPECT_THAT(said(0.1 * time.makespan_s, 0.4 * time.makespan_s), HasSubstr("the lane 'compute' is late"));
}

TEST(MissedPrediction, is_not_said_where_nobody_knows_the_machine_or_nothing_moves) {
  EXPECT_EQ(missed_prediction(compiled_with({}, {parse_home_rule("w = disk")}), {}, 2, 1e6), "");
  EXPECT_EQ(missed_prediction(compiled_with(slow_machine(), {}), {}, 2, 1e6), "");
}

}  // namespace
}  // namespace trireme::late_lane_test
