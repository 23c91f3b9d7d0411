// Plans that run side by side and send each other messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/exec/analysis/hand_plan_for_tests.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/analysis/traffic.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/op/build.h"
#include "trireme/op/registry.h"
#include "trireme/ops/ops.h"

namespace trireme::messages_test {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsEmpty;

// -- memory ---------------------------------------------------------------------------------------

// A graph that one rank of two crews runs.
class OneRank {
 public:
  OneRank() : graph_("stage") {}
  Graph& graph() { return graph_; }
  Tensor data(const std::string& name) { return {graph_, graph_.add_input(name, kType, Role::kData)}; }
  Tensor recv(int64_t tag) { return trireme::recv(graph_, kType, 1, tag); }
  ExecutionPlan plan() {
    Program program{std::move(graph_), Mesh(), {}, {}};
    for (const Value& value : program.graph.values()) {
      program.layouts.push_back(Layout::replicated(value.type->shape.rank()));
      program.whole.push_back(value.type->shape);
    }
    return plan_execution(program, {.crew = 0, .crews = 2});
  }

 private:
  static inline const TensorType kType{DType::kF32, {1024}};
  Graph graph_;
};

int only(const ExecutionPlan& plan, std::string_view op) {
  int found = -1;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (plan.actions[i].op->name == op) found = static_cast<int>(i);
  }
  return found;
}

TEST(Sends, one_that_nobody_waits_for_ends_when_its_bytes_are_used_again) {
  OneRank rank;
  const Tensor x = rank.data("x");
  send(exp(x), 1, 0);
  rank.graph().add_output("y", add(exp(x), x).id());
  const ExecutionPlan plan = rank.plan();
  EXPECT_THAT(verify(plan), IsEmpty());
  const int sent = only(plan, "send");
  const auto next = static_cast<size_t>(sent) + 1;
  EXPECT_EQ(plan.offset_of(plan.actions[next].out[0]), plan.offset_of(plan.actions[static_cast<size_t>(sent)].in[0]));
  EXPECT_THAT(plan.actions[next].waits, ElementsAre(sent));

  ExecutionPlan without = plan;
  without.actions[next].waits.clear();
  EXPECT_THAT(verify(without),
              Contains(HasSubstr("writes bytes that action 1 (send) reads in the background; it must wait")));
}

TEST(Sends, what_is_sent_stays_until_there_is_an_answer) {
  OneRank rank;
  const Tensor x = rank.data("x");
  apply(*find_op("send"), {exp(x)}, Attrs::of(SendAttrs{.to = 1, .tag = 0, .answer = 1}));
  const Tensor answer = rank.recv(1);
  rank.graph().add_output("y", add(exp(answer), square(x)).id());
  const ExecutionPlan plan = rank.plan();
  EXPECT_THAT(verify(plan), IsEmpty());
  const int sent = only(plan, "send");
  const int received = only(plan, "recv");
  const auto reads = [&](const Action& action) {
    return std::ranges::find(action.in, plan.actions[static_cast<size_t>(received)].out[0]) != action.in.end();
  };
  const auto reader = static_cast<int>(std::ranges::find_if(plan.actions, reads) - plan.actions.begin());
  for (int i = sent + 1; i <= reader; ++i) {
    for (const int id : plan.actions[static_cast<size_t>(i)].out) {
      EXPECT_NE(plan.offset_of(id), plan.offset_of(plan.actions[static_cast<size_t>(sent)].in[0])) << i;
    }
  }
  EXPECT_THAT(plan.actions[static_cast<size_t>(reader)].waits, ElementsAre(received));
}

TEST(Sends, nothing_is_written_over_what_is_on_its_way_but_what_replaces_it) {
  OneRank rank;
  const Tensor w(rank.graph(), rank.graph().add_input("w", {DType::kF32, {1024}}, Role::kParameter));
  send(w, 1, 0);
  rank.graph().add_output("w", scale(w, 2).id(), w.id());
  const ExecutionPlan plan = rank.plan();
  EXPECT_THAT(verify(plan), IsEmpty());
  EXPECT_EQ(plan.offset_of(plan.output("w").value), plan.offset_of(plan.input("w").value));
  EXPECT_THAT(plan.actions.back().waits, ElementsAre(only(plan, "send")));
}

// -- text and traffic -----------------------------------------------------------------------------

TEST(Messages, stand_in_the_text_of_a_plan) {
  HandPlan hand("dp=2", 1, 3);
  hand.send(hand.recv(0, 7, "F1.0"), 2, 131);
  const ExecutionPlan plan = hand.finish();
  const std::string text = to_string(plan);
  EXPECT_THAT(text, HasSubstr("plan 2 \"crew1\" mesh=\"dp=2\" crew=1 crews=3 "));
  EXPECT_THAT(text, HasSubstr("action message recv kernel=\"\" in=[] out=[0] waits=[] scratch=-1 scope=\"F1.0\" "
                              "attrs={from=0, tag=7, dtype=f32, shape=[4]}"));
  EXPECT_THAT(text, HasSubstr("action message send kernel=\"\" in=[0] out=[] waits=[0] scratch=-1 scope=\"\" "
                              "attrs={to=2, tag=131, answer=-1}"));
  EXPECT_EQ(to_string(parse_plan(text)), text);
}

TEST(Messages, an_action_stands_in_the_lane_of_its_op) {
  HandPlan hand("", 0, 2);
  hand.send(hand.compute({}), 1, 0);
  std::string text = to_string(hand.finish());
  text.replace(text.find("action message send"), 14, "action comm");
  try {
    parse_plan(text);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("'send' is an action of the message lane, not of 'comm'"));
  }
}

TEST(Messages, their_bytes_are_counted_where_they_are_sent) {
  HandPlan hand("", 0, 2);
  hand.send(hand.recv(1, 0), 1, 0);
  hand.send(hand.compute({}), 1, 1);
  const std::vector<PlanTraffic> traffic = traffic_per_step(hand.finish());
  ASSERT_EQ(traffic.size(), 1U);
  EXPECT_EQ(traffic[0].op, "send");
  EXPECT_EQ(traffic[0].axes, "to crew 1");
  EXPECT_EQ(traffic[0].calls, 2);
  EXPECT_EQ(traffic[0].bytes, 32);
}

// -- running --------------------------------------------------------------------------------------

class Crews : public testing::TestWithParam<std::string> {};

// Each stage takes the exponential of what comes and hands it on; the last sends what it has back to the first, through
// all. Of a mesh of two ranks, each rank talks to its like.
std::vector<ExecutionPlan> there_and_back(int stages, int parts, TensorType type) {
  std::vector<ExecutionPlan> out;
  for (int stage = 0; stage < stages; ++stage) {
    HandPlan plan("dp=2", stage, stages, type);
    const int x = stage == 0 ? plan.input("x") : -1;
    for (int part = 0; part < parts; ++part) {  // the forward way
      const int got = stage == 0 ? x : plan.recv(stage - 1, part);
      const int y = stage + 1 < stages ? plan.compute({got}) : plan.all_reduce(plan.compute({got}), {0});
      plan.send(y, stage + 1 < stages ? stage + 1 : stage - 1, part);
    }
    for (int part = 0; part < parts && stage + 1 < stages; ++part) {
      const int back = plan.recv(stage + 1, part);
      if (stage > 0) plan.send(back, stage - 1, part);
      if (stage == 0) plan.output(fmt::format("y{}", part), back);
    }
    out.push_back(plan.finish());
  }
  return out;
}

TEST_P(Crews, run_plans_of_their_own_and_talk_rank_to_rank) {
  for (const int64_t elements : {4, 3000}) {  // what is copied as it is sent, and what waits for its receiver
    const std::vector<ExecutionPlan> plans = there_and_back(3, 2, {DType::kF32, {elements}});
    for (const ExecutionPlan& plan : plans) ASSERT_THAT(verify(plan), IsEmpty());
    const std::vector<const ExecutionPlan*> crews{&plans[0], &plans[1], &plans[2]};
    ASSERT_THAT(check_communication(crews), IsEmpty());
    comm::spawn_ranks(6, GetParam(), [&](comm::World& world) {
      const ExecutionPlan& plan = plans[static_cast<size_t>(world.rank() / 2)];
      Executor executor(plan, {.world = &world});
      for (int step = 0; step < 3; ++step) {
        const float x = 0.125F * static_cast<float>(world.rank() % 2 + step) - 1;
        const float other = 0.125F * static_cast<float>((world.rank() + 1) % 2 + step) - 1;
        if (plan.crew == 0) std::ranges::fill(executor.input("x").as<float>(), x);
        executor.run();
        if (plan.crew != 0) continue;
        const auto thrice = [](float v) { return std::exp(std::exp(std::exp(v))); };
        for (const char* name : {"y0", "y1"}) {
          const auto y = executor.output(name).as<float>();
          EXPECT_THAT(std::vector<float>(y.begin(), y.end()), Each(FloatNear(thrice(x) + thrice(other), 1e-3F)));
        }
      }
    });
  }
}

TEST_P(Crews, a_rank_with_the_plan_of_another_crew_is_told) {
  const std::vector<ExecutionPlan> plans = there_and_back(2, 1, {DType::kF32, {4}});
  try {
    comm::spawn_ranks(4, GetParam(), [&](comm::World& world) { Executor executor(plans[1], {.world = &world}); });
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("is of crew 0 (crews of 2 ranks); the plan is for crew 1"));
  }
  EXPECT_THROW(
      comm::spawn_ranks(2, GetParam(), [&](comm::World& world) { Executor executor(plans[0], {.world = &world}); }),
      Error);
}

INSTANTIATE_TEST_SUITE_P(Transports, Crews, testing::ValuesIn(comm::transports_of_threads()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trireme::messages_test
