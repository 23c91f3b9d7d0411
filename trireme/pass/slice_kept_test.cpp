// What is kept for the backward pass in slices, and weights that stay gathered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/grad/gradients.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::slice_kept_test {
namespace {

using testing::IsEmpty;

int count(const Program& program, std::string_view op) {
  int out = 0;
  for (const Node& node : program.graph.nodes()) out += node.op->name == op ? 1 : 0;
  return out;
}

// Blocks of a gelu and a product, whose rows dp cuts; tp has nothing to do, and the same of everything.
Program blocks(int layers) {
  Graph graph("blocks");
  Tensor x(graph, graph.add_input("x", {DType::kF32, {256, 64}}, Role::kData));
  std::vector<Tensor> weights;
  for (int i = 0; i < layers; ++i) {
    graph.set_scope(fmt::format("h.{}", i));
    weights.emplace_back(graph, graph.add_input(fmt::format("w{}", i), {DType::kF32, {64, 64}}, Role::kParameter));
    x = gelu(matmul(x, weights.back()), true);
  }
  graph.set_scope("");
  const std::vector<Tensor> grads = gradients(mean(square(x)), weights);
  for (size_t i = 0; i < grads.size(); ++i) graph.add_output(fmt::format("g{}", i), grads[i].id());
  return partition(graph, semi_auto(graph, 4, {.mesh = "dp=2,tp=2"}));
}

Program sliced(const Program& program, Recompute how) {
  how.fewest_bytes = 1;
  const Program out = find_pass("slice_kept").run(program, {.recompute = how});
  EXPECT_THAT(verify(out), IsEmpty());
  return out;
}

using Keep = Recompute::Rule::Keep;

TEST(SliceKept, each_value_that_is_kept_is_sliced_once_and_gathered_once) {
  const Program before = blocks(4);
  const Program after = sliced(before, {.slice = true});
  const int slices = count(after, "shard_slice") - count(before, "shard_slice");
  EXPECT_GE(slices, 8) << "the product and the gelu of each block";
  EXPECT_EQ(count(after, "all_gather"), slices);
  for (const Node& node : after.graph.nodes()) {
    if (node.op->name != "all_gather") continue;
    EXPECT_TRUE(node.again);
    EXPECT_EQ(node.phase, Phase::kForward);
    EXPECT_EQ(after.graph.type(node.inputs[0]).bytes() * 2, after.graph.type(node.outputs[0]).bytes());
  }
}

std::vector<std::string> texts(const std::vector<PassRemark>& remarks) {
  std::vector<std::string> out;
  for (const PassRemark& remark : remarks) out.push_back(remark.text);
  return out;
}

std::vector<std::string> said(const std::string& pass, const Program& program, const Recompute& how) {
  std::vector<PassRemark> remarks;
  PassOptions options{.recompute = how, .remarks = &remarks};
  options.recompute.fewest_bytes = 1;
  (void)find_pass(pass).run(program, options);
  return texts(remarks);
}

// 5 x 3 of a rank's rows and columns fall in no two parts; each rank of dp has others, and those of tp the same.
TEST(SliceKept, what_stays_whole_is_said_and_why) {
  EXPECT_THAT(said("slice_kept", blocks(2), {.slice = true}), IsEmpty());
  Graph graph("odd");
  Tensor x(graph, graph.add_input("x", {DType::kF32, {10, 3}}, Role::kData));
  graph.set_scope("h.0");
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {3, 3}}, Role::kParameter));
  x = gelu(matmul(x, w), true);
  graph.set_scope("");
  graph.add_output("g", gradients(mean(square(x)), std::vector<Tensor>{w})[0].id());
  const Program both = partition(graph, semi_auto(graph, 4, {.mesh = "dp=2,tp=2"}));
  EXPECT_THAT(said("slice_kept", both, {.slice = true}),
              testing::ElementsAre(testing::AllOf(
                  testing::HasSubstr("of 2 values that several ranks have alike 2 stay whole, 0.1 KiB on each rank"),
                  testing::HasSubstr("of 'h.0', f32[5,3]"))));
  EXPECT_THAT(said("slice_kept", partition(graph, semi_auto(graph, 2, {.mesh = "dp=2"})), {.slice = true}),
              testing::ElementsAre(testing::HasSubstr("is the same on several ranks")));
}

TEST(SliceKept, rules_choose_modules) {
  const Program before = blocks(4);
  const int all = count(sliced(before, {.slice = true}), "all_gather");
  const int two = count(sliced(before, {.rules = {{"h.1", Keep::kSlice}, {"h.2", Keep::kSlice}}}), "all_gather");
  EXPECT_EQ(two, 4);
  EXPECT_LT(two, all);
  EXPECT_EQ(count(sliced(before, {.rules = {{"h.1", Keep::kSlice}, {"h.*", Keep::kMemory}}}), "all_gather"), 0);
}

TEST(SliceKept, a_program_that_is_cut_by_hand_is_refused) {
  Program by_hand = blocks(1);
  by_hand.by_hand = true;
  EXPECT_THROW(find_pass("slice_kept").run(by_hand, {.recompute = {.slice = true}}), Error);
}

TEST(SliceKept, the_step_takes_less_memory) {
  const Program before = blocks(8);
  const int64_t plain = plan_execution(before).arena().bytes;
  EXPECT_LT(plan_execution(sliced(before, {.slice = true})).arena().bytes, plain * 3 / 4);
}

// With weights in slices: each is gathered for the forward and for the backward pass, or once.
TEST(KeepGathered, a_weight_is_gathered_once_in_the_modules_that_ask) {
  Graph graph("weights");
  Tensor x(graph, graph.add_input("x", {DType::kF32, {256, 64}}, Role::kData));
  std::vector<Tensor> weights;
  for (int i = 0; i < 4; ++i) {
    graph.set_scope(fmt::format("h.{}", i));
    weights.emplace_back(graph, graph.add_input(fmt::format("w{}", i), {DType::kF32, {64, 64}}, Role::kParameter));
    x = gelu(matmul(x, weights.back()), true);
  }
  graph.set_scope("");
  const std::vector<Tensor> grads = gradients(mean(square(x)), weights);
  for (size_t i = 0; i < grads.size(); ++i) graph.add_output(fmt::format("g{}", i), grads[i].id());
  Parallel parallel{.parameters = {{"w*", "[dp, -]"}}};
  parallel.ops = {{"h.*/matmul", "[dp, -], [-, -]"}};
  const Program before = partition(graph, semi_auto(graph, 2, parallel));
  const int all = count(before, "all_gather");
  const auto kept = [&](const Recompute& how) {
    const Program out = find_pass("keep_gathered").run(before, {.recompute = how});
    EXPECT_THAT(verify(out), IsEmpty());
    return count(out, "all_gather");
  };
  EXPECT_EQ(all, 7) << "the first layer's input has no gradient";
  EXPECT_EQ(kept({.optimizer_communication = false}), 4);
  EXPECT_EQ(kept({.rules = {{.pattern = "h.1", .optimizer_communication = false}}}), 6);
  EXPECT_EQ(kept({}), all);
  EXPECT_THAT(said("keep_gathered", before, {.optimizer_communication = false}), IsEmpty());
  EXPECT_THAT(said("keep_gathered", blocks(2), {.optimizer_communication = false}),
              testing::ElementsAre(testing::HasSubstr("no weight is gathered from slices more than once")));
}

// Of a pipeline's crews.
TEST(PassRemarks, that_nothing_was_found_is_said_where_no_crew_found_any) {
  const PassRemark none{"recompute: nothing", true}, some{"slices: 2 stay whole"};
  const auto of = [](const std::vector<std::vector<PassRemark>>& crews) { return remarks_of_crews(crews); };
  EXPECT_THAT(of({{none}}), testing::ElementsAre("recompute: nothing"));
  EXPECT_THAT(of({{none}, {none}}), testing::ElementsAre("recompute: nothing"));
  EXPECT_THAT(of({{none}, {}}), IsEmpty());
  EXPECT_THAT(of({{some}}), testing::ElementsAre("slices: 2 stay whole"));
  EXPECT_THAT(of({{}, {some, none}}), testing::ElementsAre("crew 1: slices: 2 stay whole"));
}

}  // namespace
}  // namespace trireme::slice_kept_test
