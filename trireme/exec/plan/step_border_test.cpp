#include "trireme/exec/plan/step_border.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/op/move.h"
#include "trireme/partition/partition.h"

namespace trireme::step_border_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two weights on the host, which come for the forward pass and are updated there when their gradients have come.
constexpr std::string_view kText = R"(mesh "dp=1"
graph "two"
%0: f32[4096] = parameter "a"  // [-] of [4096]
%1: f32[4096] = parameter "b"  // [-] of [4096]
%2: f32[] = schedule "lr"  // [] of []
%3: f32[4096] = move(%0) {from="host", to="device"}  // [-] of [4096]
%4: f32[4096] = tanh(%3)  // [-] of [4096]
%5: f32[4096] = move(%1) {from="host", to="device"}  // [-] of [4096]
%6: f32[4096] = mul(%4, %5)  // [-] of [4096]
%7: f32[4096] = exp(%6)  // [-] of [4096]
%8: f32[4096] = move(%6) {from="device", to="host"}  // [-] of [4096]
%9: f32[4096] = move(%7) {from="device", to="host"}  // [-] of [4096]
%10: f32[] = move(%2) {from="device", to="host"}  // [] of []
%11: f32[4096] = sgd_plain_update(%0, %8, %10, %10) {weight_decay=0} on host  // [-] of [4096]
%12: f32[4096] = sgd_plain_update(%1, %9, %10, %10) {weight_decay=0} on host  // [-] of [4096]
output "y" %7
output "a" %11 updates %0
output "b" %12 updates %1
)";

ExecutionPlan two_updates() {
  ExecutionPlan out = plan_execution(parse_program(kText), {});
  EXPECT_THAT(verify(out), IsEmpty());
  return out;
}

std::vector<int> actions_named(const ExecutionPlan& plan, std::string_view op) {
  std::vector<int> out;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (plan.actions[i].op->name == op) out.push_back(static_cast<int>(i));
  }
  return out;
}

TEST(StepBorder, what_nobody_waits_for_goes_on_until_its_bytes_are_used) {
  const ExecutionPlan plan = two_updates();
  const StepBorder border = step_border(plan);
  const std::vector<int> moves = actions_named(plan, "move"), updates = actions_named(plan, "sgd_plain_update");
  EXPECT_EQ(border.left, updates);
  EXPECT_THAT(border.ends[static_cast<size_t>(moves[0])], ElementsAre(0)) << "the weight comes when it is updated";
  EXPECT_THAT(border.ends[static_cast<size_t>(moves[1])], ElementsAre(1));
  size_t ended = 0;
  for (const auto& ends : border.ends) ended += ends.size();
  EXPECT_EQ(ended, updates.size()) << "each once";
}

TEST(StepBorder, who_asks_for_what_is_updated_waits_and_who_writes_the_schedule_does_not) {
  const ExecutionPlan plan = two_updates();
  const StepBorder border = step_border(plan);
  const auto is_used = [&](int value) { return border.used[static_cast<size_t>(value)] != 0; };
  EXPECT_TRUE(is_used(plan.input("a").value));
  EXPECT_TRUE(is_used(plan.output("b").value));
  EXPECT_FALSE(is_used(plan.input("lr").value));
  EXPECT_FALSE(is_used(plan.output("y").value));
}

TEST(StepBorder, is_empty_where_all_is_waited_for_or_copied_at_the_end) {
  ExecutionPlan plan = two_updates();
  plan.outputs[1].value = plan.outputs[2].value;  // a copy, from what one update makes over what the other does
  EXPECT_THAT(step_border(plan).left, IsEmpty());
  plan = two_updates();
  plan.actions.erase(plan.actions.end() - 2, plan.actions.end());
  EXPECT_THAT(step_border(plan).left, IsEmpty());
}

// The first weight is updated under nothing, the second under the first product.
TEST(StepBorder, the_modelled_step_is_one_after_others) {
  const ExecutionPlan plan = two_updates();
  std::vector<double> seconds(plan.actions.size(), 0);
  for (const int update : actions_named(plan, "sgd_plain_update")) seconds[static_cast<size_t>(update)] = 2;
  for (const char* op : {"tanh", "exp"}) seconds[static_cast<size_t>(actions_named(plan, op)[0])] = 3;
  const VirtualTime time = virtual_time(std::array{&plan}, {.seconds = {seconds}});
  // The update of `a` is waited for (2); that of `b` runs under tanh.
  EXPECT_DOUBLE_EQ(time.makespan_s, 3 + 3 + 2);
  EXPECT_DOUBLE_EQ(time.ranks[0].lane(Lane::kHost).busy_s, 4);
  EXPECT_DOUBLE_EQ(time.ranks[0].lane(Lane::kHost).exposed_s, 2);
  for (const ActionSpan& span : time.spans[0]) {
    EXPECT_LE(span.begin_s, span.end_s);
    EXPECT_LE(span.end_s, time.makespan_s);
  }
}

}  // namespace
}  // namespace trireme::step_border_test
