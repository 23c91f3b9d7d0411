// Calls of equal collectives: section 16 of the contracts, test by test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/analysis/hand_plan_for_tests.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/run/executor.h"

namespace trireme::reuse_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// `count` sums of f32[4], one after the other, over an axis of two ranks.
ExecutionPlan sums(int count, std::vector<int64_t> axes = {0}, std::string_view mesh = "dp=2") {
  HandPlan hand(mesh, 0, 1);
  int value = hand.input("x");
  for (int i = 0; i < count; ++i) value = hand.all_reduce(value, axes);
  hand.output("y", value);
  return hand.finish();
}

std::vector<int> calls(const ExecutionPlan& plan) {
  EXPECT_THAT(verify(plan), IsEmpty());
  std::vector<int> out;
  for (const Action& action : plan.actions) out.push_back(action.call);
  return out;
}

ExecutionPlan reused(ExecutionPlan plan, const ReuseOptions& options) {
  reuse_collectives(plan, options);
  return plan;
}

TEST(Reuse, contracts_16_2_thirty_sums_at_three_a_stream_take_1_stream_and_not_10) {
  const ExecutionPlan plan = reused(sums(30), {.limit = kUsualReuseLimit, .above = 3});
  const ReuseSavings saved = reuse_savings(plan, 3);
  EXPECT_EQ(saved.streams_before, 10);
  EXPECT_EQ(saved.streams_after, 1);
  EXPECT_EQ(saved.actions, 30);
  EXPECT_EQ(saved.calls, 1);
}

TEST(Reuse, contracts_16_3_as_many_as_a_stream_carries_are_left_alone) {
  EXPECT_THAT(calls(reused(sums(3), {.limit = 1000, .above = 3})), ElementsAre(-1, -1, -1));
  EXPECT_THAT(calls(reused(sums(4), {.limit = 1000, .above = 3})), ElementsAre(0, 0, 0, 0));
}

TEST(Reuse, contracts_16_4_no_more_than_the_limit_name_a_call) {
  const ExecutionPlan plan = reused(sums(30), {.limit = 5, .above = 3});
  const std::vector<int> found = calls(plan);
  EXPECT_EQ(std::ranges::count(found, 0), 5);
  EXPECT_EQ(std::ranges::count(found, -1), 25);
  EXPECT_EQ(reuse_savings(plan, 3).streams_after, 1 + 9);
}

TEST(Reuse, contracts_16_6_what_differs_in_ranks_or_type_shares_no_call) {
  ExecutionPlan two_groups = sums(2, {0}, "dp=2,tp=2");
  const ExecutionPlan other = sums(2, {1}, "dp=2,tp=2");
  for (size_t i = 0; i < 2; ++i) two_groups.actions[i].attrs = (i == 0 ? two_groups : other).actions[i].attrs;
  EXPECT_THAT(calls(reused(two_groups, {.limit = 1000})), ElementsAre(-1, -1));
  ExecutionPlan two_types = sums(3);
  for (const int id : {2, 3}) two_types.values[static_cast<size_t>(id)].type.dtype = DType::kI32;
  two_types.actions[2].in = {3};
  EXPECT_THAT(calls(reused(two_types, {.limit = 1000})), testing::Each(-1));
}

// Section 16, test 7: of a model of 72 layers, with two sums each, and an op between them.
TEST(Reuse, contracts_16_7_the_plan_of_72_layers_is_smaller_and_bound_in_one_look_up) {
  HandPlan hand("dp=2", 0, 1);
  int value = hand.input("x");
  for (int i = 0; i < 144; ++i) value = hand.compute({hand.all_reduce(value, {0})});
  hand.output("y", value);
  const ExecutionPlan plain = hand.finish();
  const ExecutionPlan plan = reused(plain, {.limit = kUsualReuseLimit});
  const ReuseSavings saved = reuse_savings(plan, 1);
  EXPECT_EQ(saved.plan_bytes, static_cast<int64_t>(to_string(plain).size() - to_string(plan).size()));
  EXPECT_GT(saved.plan_bytes, static_cast<int64_t>(to_string(plain).size() / 6));
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    const Executor without(plain, {.world = &world}), with(plan, {.world = &world});
    EXPECT_EQ(without.binding().collectives, 144);
    EXPECT_EQ(without.binding().lookups, 144);
    EXPECT_EQ(with.binding().collectives, 144);
    EXPECT_EQ(with.binding().lookups, 1);
  });
}

TEST(Reuse, contracts_16_1_results_are_the_same) {
  const ExecutionPlan plain = sums(6);
  const ExecutionPlan plan = reused(plain, {.limit = 1000});
  EXPECT_THAT(check_communication(plan), IsEmpty());
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    Executor without(plain, {.world = &world}), with(plan, {.world = &world});
    for (Executor* each : {&without, &with}) {
      const std::span<float> x = each->input("x").as<float>();
      for (size_t i = 0; i < x.size(); ++i) x[i] = 0.1F * static_cast<float>(i) + static_cast<float>(world.rank());
      each->run();
    }
    EXPECT_TRUE(std::ranges::equal(without.output("y").raw(), with.output("y").raw()));
    EXPECT_NEAR(with.output("y").as<float>()[1], 32 * 1.2, 1e-4);
  });
}

TEST(Reuse, two_of_one_call_may_be_under_way) {
  HandPlan hand("dp=2", 0, 1);
  const int a = hand.input("a"), b = hand.input("b");
  const int first = hand.all_reduce(a, {0}), second = hand.all_reduce(b, {0});
  hand.output("first", hand.compute({first}));
  hand.output("second", hand.compute({second}));
  const ExecutionPlan plan = reused(hand.finish(), {.limit = 1000});
  EXPECT_THAT(calls(plan), ElementsAre(0, 0, -1, -1));
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    Executor executor(plan, {.world = &world});
    std::ranges::fill(executor.input("a").as<float>(), 0.5F);
    std::ranges::fill(executor.input("b").as<float>(), -1.0F);
    executor.run();
    EXPECT_FLOAT_EQ(executor.output("first").as<float>()[0], std::exp(1.0F));
    EXPECT_FLOAT_EQ(executor.output("second").as<float>()[0], std::exp(-2.0F));
  });
}

TEST(Reuse, the_text_says_a_call_once_and_reads_back) {
  const ExecutionPlan plan = reused(sums(3), {.limit = 2});
  const std::string text = to_string(plan);
  EXPECT_THAT(text, HasSubstr("\ncall all_reduce in=[f32[4]] out=[f32[4]] attrs={axes=[0],"));
  EXPECT_THAT(text, HasSubstr("\naction comm call=0 in=[1] out=[2] waits=[0] scratch=-1 scope=\"\"\n"));
  EXPECT_EQ(to_string(parse_plan(text)), text);
  EXPECT_NE(hash(plan), hash(sums(3)));
}

std::string refusal(std::string text, const std::string& what, const std::string& with) {
  text.replace(text.find(what), what.size(), with);
  try {
    parse_plan(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Reuse, texts_of_calls_that_cannot_be_are_refused) {
  const std::string text = to_string(reused(sums(3), {.limit = 2}));
  EXPECT_THAT(refusal(text, "call=0", "call=1"), HasSubstr("no call '1' stands above"));
  EXPECT_THAT(refusal(text, "call=0", "call=x"), HasSubstr("no call 'x' stands above"));
  EXPECT_THAT(refusal(text, "call all_reduce", "call exp"), HasSubstr("'exp' is no collective"));
  EXPECT_THAT(refusal(text, "in=[f32[4]]", "in=f32[4]"), HasSubstr("expected types in brackets"));
}

TEST(Reuse, an_action_that_is_not_its_call_is_found) {
  ExecutionPlan plan = reused(sums(2), {.limit = 1000});
  plan.calls[0].in[0].shape = {5};
  EXPECT_THAT(verify(plan),
              testing::Contains(HasSubstr("action 0 (all_reduce) is not what its call 0 (all_reduce) is")));
  plan.calls.clear();
  EXPECT_THAT(verify(plan), testing::Contains(HasSubstr("action 0 is of call 0; the plan has 0")));
}

}  // namespace
}  // namespace trireme::reuse_test
