#include "trireme/exec/soundness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/op/structural.h"
#include "trireme/ops/ops.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/pipeline.h"
#include "trireme/plan/parallel.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Tensor input(Graph& graph, const std::string& name, Shape shape, Role role = Role::kParameter) {
  return {graph, graph.add_input(name, {DType::kF32, shape}, role)};
}

// Layers whose weights are cut over "tp" in turn along both dimensions, with a batch cut over "dp":
// reduces, gathers and scatters over both axes and over both at once.
ExecutionPlan layers_plan(const std::string& mesh_text, int layers, int64_t width) {
  Graph graph("layers");
  const Mesh mesh = parse_mesh(mesh_text);
  Tensor x = input(graph, "x", {64, width}, Role::kData);
  std::vector<Layout> layouts{parse_layout("[dp, -]", mesh)};
  for (int i = 0; i < layers; ++i) {
    graph.set_scope(fmt::format("layer{}", i));
    x = gelu(matmul(x, input(graph, fmt::format("w{}", i), {width, width})));
    layouts.push_back(parse_layout(i % 2 == 0 ? "[-, tp]" : "[tp, -]", mesh));
  }
  graph.set_scope("loss");
  graph.add_output("loss", mean(square(x)).id());
  return plan_execution(run_passes(partition(graph, propagate(graph, mesh, layouts))));
}

std::vector<std::vector<CommCall>> calls_of_all(const ExecutionPlan& plan) {
  std::vector<std::vector<CommCall>> out;
  for (int64_t rank = 0; rank < plan.mesh.devices(); ++rank) out.push_back(calls_of(plan, rank));
  return out;
}

// A plan with one collective on the whole mesh, its attributes changed.
ExecutionPlan with_attrs(const std::function<void(CollectiveAttrs&)>& change) {
  ExecutionPlan plan = layers_plan("dp=2,tp=2", 2, 8);
  for (Action& action : plan.actions) {
    if (action.op->name != "all_reduce") continue;
    CollectiveAttrs attrs = action.attrs.as<CollectiveAttrs>();
    change(attrs);
    action.attrs = Attrs::of(attrs);
    return plan;
  }
  ADD_FAILURE() << "no all_reduce";
  return plan;
}

CommCall call(std::vector<int> ranks, std::string what, int action = 0, std::string scope = "") {
  return {std::move(ranks), std::move(what), action, std::move(scope)};
}

TEST(CheckCommunication, a_plan_for_1024_ranks_is_sound) {
  const ExecutionPlan plan = layers_plan("dp=64,tp=16", 12, 64);
  EXPECT_GE(calls_of(plan, 0).size(), 6U);
  EXPECT_THAT(check_communication(plan), IsEmpty());
  EXPECT_THAT(check_communication(calls_of_all(plan)), IsEmpty());
}

TEST(CheckCommunication, names_the_axis_that_the_mesh_does_not_have) {
  const ExecutionPlan plan = with_attrs([](CollectiveAttrs& attrs) { attrs.axes = {7}; });
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("the mesh 'dp=2,tp=2' has no axis 7")));
}

TEST(CheckCommunication, refuses_an_axis_named_twice) {
  const ExecutionPlan plan = with_attrs([](CollectiveAttrs& attrs) { attrs.axes = {1, 1}; });
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("axis 'tp' is named twice")));
}

TEST(CheckCommunication, refuses_groups_of_another_size_than_the_action_says) {
  const ExecutionPlan plan = with_attrs([](CollectiveAttrs& attrs) { attrs.size = 4; });
  EXPECT_THAT(check_communication(plan),
              ElementsAre(AllOf(HasSubstr("all_reduce of f32 x"), HasSubstr("groups have 4 ranks; they have 2"))));
}

TEST(CheckCommunication, refuses_a_root_outside_the_group) {
  const ExecutionPlan plan = with_attrs([](CollectiveAttrs& attrs) { attrs.root = 2; });
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("its root is 2 in groups of 2 ranks")));
}

TEST(CheckCommunication, refuses_results_of_other_types_than_the_operands) {
  ExecutionPlan plan = layers_plan("dp=2,tp=2", 2, 8);
  for (const Action& action : plan.actions) {
    if (action.op->name != "all_reduce") continue;
    plan.values[static_cast<size_t>(action.out[0])].type.dtype = DType::kF64;
    break;
  }
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("makes f64[32,8] of f32[32,8] over 2 ranks")));
}

TEST(CheckCommunication, refuses_results_of_other_shapes_than_the_op_makes) {
  ExecutionPlan plan = layers_plan("dp=2,tp=2", 2, 8);
  for (const Action& action : plan.actions) {
    if (action.op->name != "all_reduce") continue;
    plan.values[static_cast<size_t>(action.out[0])].type.shape = {8, 32};
    break;
  }
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("makes f32[8,32] of f32[32,8] over 2 ranks")));
}

TEST(Matching, ranks_of_different_plans_differ_in_their_counts) {
  std::vector<std::vector<CommCall>> calls = calls_of_all(layers_plan("dp=2,tp=2", 2, 8));
  calls[3] = calls_of(layers_plan("dp=2,tp=2", 2, 16), 3);
  const std::vector<std::string> found = check_communication(calls);
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found[0], AllOf(HasSubstr("rank 2 starts action 3 (all_reduce of f32 x 256 by sum at 'layer1')"),
                              HasSubstr("rank 3 starts action 3 (all_reduce of f32 x 512 by sum at 'layer1')")));
}

TEST(Matching, names_the_first_operation_that_differs_in_kind) {
  EXPECT_THAT(check_communication(
                  {{call({0, 1}, "all_reduce of f32 x 4 by sum", 1), call({0, 1}, "all_gather of f32 x 2", 5)},
                   {call({0, 1}, "all_reduce of f32 x 4 by sum", 1), call({0, 1}, "all_reduce of f32 x 2 by sum", 6)}}),
              ElementsAre("operation 1 on the ranks 0,1: rank 0 starts action 5 (all_gather of f32 "
                          "x 2), rank 1 starts "
                          "action 6 (all_reduce of f32 x 2 by sum)"));
}

TEST(Matching, names_the_operation_that_a_rank_leaves_out) {
  EXPECT_THAT(check_communication({{call({0, 1}, "a", 1), call({0, 1}, "b", 2, "up")}, {call({0, 1}, "a", 1)}}),
              ElementsAre("operation 1 on the ranks 0,1: rank 0 starts action 2 (b at 'up'), rank "
                          "1 starts nothing"));
  EXPECT_THAT(check_communication({{}, {call({0, 1}, "a", 1)}}),
              ElementsAre("operation 0 on the ranks 0,1: rank 0 starts nothing, rank 1 starts action 1 (a)"));
}

TEST(Matching, refuses_a_communicator_without_the_rank) {
  EXPECT_THAT(check_communication({{call({1, 2}, "a")}, {}, {}}),
              ElementsAre("rank 0: action 0 (a) is on the ranks 1,2, which it is none of"));
}

TEST(Matching, communicators_are_told_apart_by_the_order_of_their_ranks) {
  EXPECT_THAT(check_communication({{call({0, 1}, "a"), call({1, 0}, "b")}, {call({0, 1}, "a"), call({1, 0}, "b")}}),
              IsEmpty());
}

TEST(Deadlock, two_ranks_that_start_two_operations_in_other_orders_wait_for_each_other) {
  const std::vector<std::string> found =
      check_communication({{call({0, 1}, "a", 1), call({1, 0}, "b", 2)}, {call({1, 0}, "b", 1), call({0, 1}, "a", 2)}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0], AllOf(HasSubstr("in a circle"), HasSubstr("rank 0 starts action 2 (b) on the ranks 1,0"),
                              HasSubstr("rank 1 starts action 2 (a) on the ranks 0,1")));
}

TEST(Deadlock, a_ring_of_three_ranks_waits_although_every_communicator_matches) {
  const CommCall a = call({0, 1}, "a"), b = call({1, 2}, "b"), c = call({2, 0}, "c");
  EXPECT_THAT(check_communication({{a, c}, {b, a}, {c, b}}), ElementsAre(HasSubstr("in a circle")));
  EXPECT_THAT(check_communication({{a, c}, {a, b}, {b, c}}), IsEmpty());
}

}  // namespace
}  // namespace trireme
