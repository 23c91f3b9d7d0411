#include "trireme/exec/run/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "trireme/base/error.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/agree.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::executor_test {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor input(Graph& graph, const std::string& name, Shape shape, Role role = Role::kParameter) {
  return {graph, graph.add_input(name, {DType::kF32, shape}, role)};
}

ExecutionPlan plan_of(const Graph& graph, int64_t ranks = 1) {
  return plan_execution(run_passes(partition(graph, data_parallel(graph, ranks))));
}

void set(const View& view, std::vector<float> values) {
  std::copy(values.begin(), values.end(), view.as<float>().begin());
}

std::vector<float> get(const View& view) {
  return {view.as<float>().begin(), view.as<float>().end()};
}

template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Executor, a_step_leaves_updated_parameters_for_the_next) {
  Graph graph;
  const Tensor w = input(graph, "w", {2});
  const Tensor x = input(graph, "x", {2}, Role::kData);
  graph.add_output("w", add(w, x).id(), w.id());
  const ExecutionPlan plan = plan_of(graph);
  Executor executor(plan, {});
  set(executor.input("w"), {1, 2});
  for (int step = 0; step < 3; ++step) {
    set(executor.input("x"), {10, 20});
    executor.run();
  }
  EXPECT_THAT(get(executor.input("w")), ElementsAre(31, 62));
}

TEST(Executor, updates_that_are_not_in_place_are_copied_at_the_steps_end) {
  Graph graph;
  const Tensor w = input(graph, "w", {2});
  const Tensor next = scale(w, 2);
  graph.add_output("w", next.id(), w.id());
  graph.add_output("both", add(next, w).id());  // reads w after its successor is made
  const ExecutionPlan plan = plan_of(graph);
  ASSERT_NE(plan.offset_of(plan.output("w").value), plan.offset_of(plan.input("w").value));
  Executor executor(plan, {});
  set(executor.input("w"), {1, 3});
  executor.run();
  EXPECT_THAT(get(executor.output("both")), ElementsAre(3, 9));
  EXPECT_THAT(get(executor.input("w")), ElementsAre(2, 6));
}

TEST(Executor, a_view_of_a_parameter_kept_as_a_result_is_what_it_was_before_the_update) {
  Graph graph;
  const Tensor w = input(graph, "w", {4});
  graph.add_output("before", reshape(reshape(w, {2, 2}), {1, 4}).id());
  graph.add_output("w", scale(w, 2).id(), w.id());
  const ExecutionPlan plan = plan_of(graph);
  Executor executor(plan, {});
  set(executor.input("w"), {1, 2, 3, 4});
  executor.run();
  EXPECT_THAT(get(executor.output("before")), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(get(executor.input("w")), ElementsAre(2, 4, 6, 8));
}

TEST(Executor, a_state_that_keeps_a_parameters_old_value_gets_it_before_the_update) {
  Graph graph;
  const Tensor w = input(graph, "w", {2});
  const Tensor before = input(graph, "before", {2}, Role::kState);
  graph.add_output("w", scale(w, 2).id(), w.id());
  graph.add_output("before", w.id(), before.id());
  const ExecutionPlan plan = plan_of(graph);
  Executor executor(plan, {});
  set(executor.input("w"), {1, 3});
  executor.run();
  EXPECT_THAT(get(executor.input("before")), ElementsAre(1, 3));
  EXPECT_THAT(get(executor.input("w")), ElementsAre(2, 6));
}

TEST(Executor, inputs_that_trade_places_are_refused) {
  Graph graph("swap");
  const Tensor a = input(graph, "a", {2});
  const Tensor b = input(graph, "b", {2});
  graph.add_output("a", b.id(), a.id());
  graph.add_output("b", a.id(), b.id());
  const ExecutionPlan plan = plan_of(graph);
  EXPECT_THAT(error_of([&] { Executor executor(plan, {}); }),
              HasSubstr("plan 'swap': 2 outputs exchange the values of the inputs they update"));
}

TEST(Executor, uses_the_bytes_that_were_predicted_and_no_more) {
  Graph graph;
  const Tensor w = input(graph, "w", {33});
  const Tensor x = input(graph, "x", {4, 33}, Role::kData);
  graph.add_output("y", reduce_sum(gelu(mul(x, w)), {0}).id());
  const ExecutionPlan plan = plan_of(graph);
  constexpr size_t kGuard = 256;
  HostTensor memory(TensorType{DType::kU8, {plan.arena().bytes + static_cast<int64_t>(kGuard)}});
  const auto bytes = memory.view().raw();
  std::fill(bytes.begin(), bytes.end(), std::byte{0x5A});
  Executor executor(plan, {.arena = bytes.first(bytes.size() - kGuard)});
  EXPECT_EQ(executor.arena().size(), static_cast<size_t>(plan.arena().bytes));
  set(executor.input("w"), std::vector<float>(33, 1));
  set(executor.input("x"), std::vector<float>(132, 1));
  executor.run();
  for (const std::byte guard : bytes.last(kGuard)) ASSERT_EQ(guard, std::byte{0x5A});
}

TEST(Executor, a_parameter_may_lie_in_an_arena_of_the_host) {
  Graph graph;
  const Tensor w = input(graph, "w", {2});
  const Tensor x = input(graph, "x", {2}, Role::kData);
  graph.add_output("w", add(w, x).id(), w.id());
  const ExecutionPlan plan =
      plan_execution(run_passes(partition(graph, data_parallel(graph, 1))), {.homes = {{"w", Tier::kHost}}});
  Executor executor(plan, {});
  set(executor.input("w"), {1, 2});
  for (int step = 0; step < 3; ++step) {
    set(executor.input("x"), {10, 20});
    executor.run();
  }
  EXPECT_THAT(get(executor.input("w")), ElementsAre(31, 62));
  const std::span<std::byte> arena = executor.arena();
  const std::byte* const where = executor.input("w").data;
  EXPECT_TRUE(where < arena.data() || where >= arena.data() + arena.size());
}

TEST(Executor, an_arena_that_is_too_small_is_refused) {
  Graph graph;
  graph.add_output("y", exp(input(graph, "w", {32})).id());
  const ExecutionPlan plan = plan_of(graph);
  HostTensor memory(TensorType{DType::kU8, {64}});
  EXPECT_THAT(error_of([&] { Executor executor(plan, {.arena = memory.view().raw()}); }),
              HasSubstr(fmt::format("the plan needs an arena of {} bytes; 64 are given", plan.arena().bytes)));
}

TEST(Executor, a_plan_for_another_number_of_ranks_is_refused) {
  Graph graph;
  graph.add_output("y", exp(input(graph, "x", {4}, Role::kData)).id());
  const ExecutionPlan plan = plan_of(graph, 2);
  EXPECT_THAT(error_of([&] { Executor executor(plan, {}); }),
              HasSubstr("the plan is for 2 ranks ('dp=2'); this job has 1"));
}

TEST(Executor, a_kernel_this_build_does_not_have_is_refused) {
  Graph graph;
  graph.add_output("y", exp(input(graph, "x", {4}, Role::kData)).id());
  ExecutionPlan plan = plan_of(graph);
  plan.actions[0].kernel = "exp.quantum";
  EXPECT_THAT(error_of([&] { Executor executor(plan, {}); }),
              HasSubstr("the plan asks for kernel 'exp.quantum' of op 'exp', which device 'cpu' of this "
                        "build does not have"));
}

TEST(Executor, errors_carry_the_op_and_its_scope) {
  Graph graph;
  const Tensor table = input(graph, "table", {4, 2});
  const Tensor ids(graph, graph.add_input("ids", {DType::kI32, {2}}, Role::kData));
  graph.set_scope("words");
  graph.add_output("y", embedding(table, ids).id());
  const ExecutionPlan plan = plan_of(graph);
  Executor executor(plan, {});
  executor.input("ids").as<int32_t>()[0] = 9;
  executor.input("ids").as<int32_t>()[1] = 0;
  EXPECT_THAT(error_of([&] { executor.run(); }), HasSubstr("in embedding at 'words'"));
}

TEST(Executor, times_are_kept_only_when_asked_for) {
  Graph graph;
  graph.add_output("y", exp(input(graph, "x", {4}, Role::kData)).id());
  const ExecutionPlan plan = plan_of(graph);
  Executor executor(plan, {});
  set(executor.input("x"), {1, 2, 3, 4});
  executor.run();
  ASSERT_EQ(executor.times().size(), 1U);
  EXPECT_EQ(executor.times()[0].seconds, 0);
  executor.set_timing(true);
  executor.run();
  EXPECT_EQ(executor.times()[0].op, "exp");
  EXPECT_GT(executor.times()[0].seconds, 0);
}

TEST(Executor, each_rank_holds_its_part_of_the_batch) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 3}, Role::kData);
  graph.add_output("sum", reduce_sum(x).id());
  const ExecutionPlan plan = plan_of(graph, 4);
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    Executor executor(plan, {.world = &world});
    const Box box = executor.input_box("x");
    EXPECT_EQ(to_string(box), fmt::format("[{}:{},0:3]", 2 * world.rank(), 2 * world.rank() + 2));
    set(executor.input("x"), std::vector<float>(6, static_cast<float>(world.rank() + 1)));
    executor.run();
    EXPECT_THAT(get(executor.output("sum")), ElementsAre(60));
  });
}

TEST(Agree, ranks_that_planned_something_else_are_named) {
  const auto plan_with = [](double value) {
    Graph graph;
    graph.add_output("y", scale(input(graph, "x", {8}, Role::kData), value).id());
    return plan_of(graph, 4);
  };
  std::mutex mutex;
  std::vector<std::string> errors;
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    const ExecutionPlan plan = plan_with(world.rank() % 2 == 0 ? 1.0 : 2.0);
    const std::string what = error_of([&] { agree({&plan}, world); });
    const std::lock_guard lock(mutex);
    errors.push_back(what);
  });
  ASSERT_EQ(errors.size(), 4U);
  for (const std::string& what : errors) {
    EXPECT_THAT(what, HasSubstr("the ranks have planned different programs: rank 1, 3 (plan "));
    EXPECT_THAT(what,
                ContainsRegex("is first to differ: '[^']*value=1[^']*' on rank 0, '[^']*value=2[^']*' on rank 1;"));
  }
}

// Buffers come first in a plan's text, and differ with what is done.
TEST(Agree, what_ranks_do_otherwise_is_told_before_where_values_lie) {
  const auto start = [&] {
    comm::spawn_ranks(2, "threads", [&](comm::World& world) {
      Graph graph;
      const Tensor x = input(graph, "x", {8}, Role::kData);
      graph.add_output("y", world.rank() == 0 ? exp(x).id() : reduce_sum(exp(x), {0}).id());
      const ExecutionPlan plan = plan_of(graph, 2);
      agree({&plan}, world);
    });
  };
  EXPECT_THAT(error_of(start), testing::AllOf(HasSubstr("is first to differ: '"),
                                              testing::Not(ContainsRegex("first to differ: '(arena|buffer|value)"))));
}

TEST(Agree, ranks_with_other_instructions_are_told_so) {
  Graph graph;
  graph.add_output("y", exp(input(graph, "x", {8}, Role::kData)).id());
  ExecutionPlan here = plan_of(graph, 4);
  here.bits = "fast on avx512";
  ExecutionPlan there = here;
  there.bits = "fast on avx2";
  const auto start = [&] {
    comm::spawn_ranks(4, "threads", [&](comm::World& world) { agree({world.rank() < 2 ? &here : &there}, world); });
  };
  EXPECT_THAT(error_of(start), HasSubstr("the ranks would compute with different instructions, so copies of a value on "
                                         "several ranks would differ: rank 2 is 'fast on avx2', rank 0 is 'fast on "
                                         "avx512'; set TRIREME_ISA on all ranks"));
}

TEST(Agree, equal_plans_pass) {
  Graph graph;
  graph.add_output("y", exp(input(graph, "x", {8}, Role::kData)).id());
  const ExecutionPlan plan = plan_of(graph, 2);
  EXPECT_NO_THROW(comm::spawn_ranks(2, "threads", [&](comm::World& world) { agree({&plan}, world); }));
}

}  // namespace
}  // namespace trireme::executor_test
