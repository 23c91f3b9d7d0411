#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/registry.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/recompute_rules.h"

namespace trireme::recompute_test {
namespace {

Program recompute_rows(const Program& program) {
  return find_pass("recompute").run(program, {.recompute = {.rows = true}});
}

using testing::IsEmpty;

constexpr int64_t kRows = 512;
constexpr int64_t kWidth = 64;

// Layers of a norm, a product, and the function, with the gradients of all weights.
Program layers(Tensor (*function)(const Tensor& x), int count) {
  Graph graph("layers");
  Tensor x(graph, graph.add_input("x", {DType::kF32, {kRows, kWidth}}, Role::kData));
  const Tensor gamma(graph, graph.add_input("gamma", {DType::kF32, {kWidth}}, Role::kParameter));
  std::vector<Tensor> weights;
  for (int i = 0; i < count; ++i) {
    weights.emplace_back(graph,
                         graph.add_input(fmt::format("w{}", i), {DType::kF32, {kWidth, kWidth}}, Role::kParameter));
    x = add(x, matmul(function(matmul(rms_norm(x, gamma).y, weights.back())), weights.back()));
  }
  const std::vector<Tensor> grads = gradients(mean(square(x)), weights);
  for (size_t i = 0; i < grads.size(); ++i) graph.add_output(fmt::format("g{}", i), grads[i].id());
  return partition(graph, data_parallel(graph, 1));
}

int count(const Program& program, std::string_view op) {
  int out = 0;
  for (const Node& node : program.graph.nodes()) out += node.op->name == op ? 1 : 0;
  return out;
}

Tensor smooth(const Tensor& x) {
  return gelu(x, true);
}

TEST(RecomputeRows, functions_and_norms_are_there_twice_and_products_once) {
  const Program before = layers(smooth, 3);
  const Program after = recompute_rows(before);
  EXPECT_THAT(verify(after), IsEmpty());
  EXPECT_EQ(count(after, "gelu"), 6);
  EXPECT_EQ(count(after, "rms_norm"), 6);
  EXPECT_EQ(count(after, "matmul"), count(before, "matmul"));
}

TEST(RecomputeRows, that_nothing_is_computed_again_is_said) {
  const auto said = [](const Program& program, const Recompute& how) {
    std::vector<PassRemark> remarks;
    (void)find_pass("recompute").run(program, {.recompute = how, .remarks = &remarks});
    return remarks.empty() ? "" : remarks.front().text;
  };
  EXPECT_EQ(said(layers(smooth, 1), {.rows = true}), "");
  EXPECT_EQ(said(layers(smooth, 1), {.rows = true, .fewest_bytes = 1 << 20}),
            "recompute: nothing is computed again; no activation function or norm makes 64 KiB or more on a rank that "
            "the backward pass reads");
  EXPECT_EQ(said(layers(smooth, 1), {.blocks = -1}),
            "recompute: nothing is computed again; no module with a number (h.0) makes what the backward pass reads");
  EXPECT_EQ(said(layers(smooth, 1), {.rules = {{"", Recompute::Rule::Keep::kMemory}}}), "");
}

TEST(RecomputeRows, that_exchanging_nothing_again_changes_nothing_is_said_on_several_ranks) {
  const auto said = [](int64_t ranks) {
    Program program = layers(smooth, 1);
    program.mesh = Mesh({{"dp", ranks}});
    std::vector<PassRemark> remarks;
    (void)find_pass("recompute")
        .run(program, {.recompute = {.rows = true, .communication = false}, .remarks = &remarks});
    return remarks.empty() ? "" : remarks.front().text;
  };
  EXPECT_EQ(said(2),
            "recompute_communication = false: ranks exchange nothing inside what is computed again, so nothing is kept "
            "that would not be");
  EXPECT_EQ(said(1), "");
}

TEST(RecomputeBlocks, more_than_there_are_are_refused) {
  const auto refusal = [](const std::vector<std::string>& scopes, int64_t blocks) -> std::string {
    Graph graph("blocks");
    Tensor x(graph, graph.add_input("x", {DType::kF32, {4}}, Role::kData));
    for (const std::string& scope : scopes) {
      graph.set_scope(scope);
      x = relu(x);
    }
    graph.add_output("y", x.id());
    try {
      check_blocks(graph, blocks);
      return "";
    } catch (const Error& error) {
      return error.text();
    }
  };
  const std::vector<std::string> two = {"wte", "h.0.mlp", "h.1.mlp", "ln_f"};
  EXPECT_EQ(refusal(two, 2), "");
  EXPECT_EQ(refusal(two, -1), "");
  EXPECT_EQ(refusal(two, 3),
            "train.recompute = 3: the model has at most 2 blocks in a row, up to 'h.1'; use 2 or less, or 'full'");
  EXPECT_EQ(refusal({"layer1.0", "layer2.0", "layer2.1", "layer3.0"}, 3),
            "train.recompute = 3: the model has at most 2 blocks in a row, up to 'layer2.1'; use 2 or less, or 'full'");
  EXPECT_EQ(
      refusal({"fc", "head"}, 1),
      "train.recompute = 1: no module of the model has a number, as 'h.0' has, so that there are no first blocks; "
      "use 'selective' or 'none'");
}

TEST(RecomputeRows, the_second_ones_are_marked_and_say_so_in_text) {
  const Program after = recompute_rows(layers(smooth, 2));
  const std::string text = to_string(after.graph);
  EXPECT_EQ(to_string(parse_graph(text, find_op_base)), text);
  int again = 0;
  for (const Node& node : after.graph.nodes()) {
    again += node.again ? 1 : 0;
    if (node.again) EXPECT_EQ(node.phase, Phase::kForward) << node.op->name;
  }
  EXPECT_EQ(again, 2 * 2) << "a gelu and a norm in each layer";
}

// The model's own scopes may begin like those that gradients and updates are put in.
TEST(RecomputeRows, what_the_model_calls_grad_or_update_is_of_the_forward_pass) {
  const auto named = [](const Tensor& x) {
    const std::string outer(x.graph().scope());
    x.graph().set_scope("grad/mine");
    const Tensor y = gelu(x, true);
    x.graph().set_scope("update/w0");
    const Tensor z = gelu(y, true);
    x.graph().set_scope(outer);
    return z;
  };
  const Program after = recompute_rows(layers(named, 3));
  EXPECT_EQ(count(after, "gelu"), 3 * 2 * 2);
}

TEST(RecomputeRows, what_the_backward_pass_reads_is_the_second_one) {
  const Program after = recompute_rows(layers(smooth, 2));
  std::vector<NodeId> made(after.graph.values().size(), -1);
  for (NodeId id = 0; id < static_cast<NodeId>(after.graph.nodes().size()); ++id) {
    const Node& node = after.graph.node(id);
    for (const ValueId out : node.outputs) made[static_cast<size_t>(out)] = id;
    if (node.op->name != "linear_weight_grad") continue;
    const NodeId producer = made[static_cast<size_t>(node.inputs[0])];
    EXPECT_EQ(id - producer, 1) << after.graph.node(producer).op->name << " is not made just before it is read";
  }
}

TEST(RecomputeRows, the_step_takes_less_memory) {
  const Program before = layers(smooth, 6);
  const int64_t kept = plan_execution(before).arena().bytes;
  // Of each layer the product before gelu and the sum stay; gelu's result and the norm's do not.
  EXPECT_LT(plan_execution(recompute_rows(before)).arena().bytes, kept - 6 * kRows * kWidth * 4);
}

// The ops of the backward pass of a product of a norm's result, whose weight is cut over the ranks.
std::vector<std::string> backward_ops(int ranks) {
  Graph graph("product");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {kRows, kWidth}}, Role::kData));
  const Tensor inner(graph, graph.add_input("inner", {DType::kF32, {kWidth, kWidth}}, Role::kParameter));
  const Tensor outer(graph, graph.add_input("outer", {DType::kF32, {kWidth, kWidth}}, Role::kParameter));
  const Tensor gamma(graph, graph.add_input("gamma", {DType::kF32, {kWidth}}, Role::kParameter));
  const Tensor y = matmul(rms_norm(matmul(x, inner), gamma).y, outer);
  const std::vector<Tensor> weights{inner, outer};
  const std::vector<Tensor> grads = gradients(mean(square(y)), weights);
  for (const Tensor& grad : grads) graph.add_output(fmt::format("g{}", grad.id()), grad.id());
  const Mesh mesh({{"tp", ranks}});
  Asks asks;
  for (const char* layout : {"[-, -]", "[-, -]", "[-, tp]", "[-]"})
    asks.inputs.emplace_back(parse_layout(layout, mesh));
  const Program after = recompute_rows(partition(graph, propagate(graph, mesh, asks)));
  EXPECT_THAT(verify(after), IsEmpty());
  std::vector<std::string> out;
  for (const Node& node : after.graph.nodes()) {
    if (node.phase == Phase::kBackward || node.again) out.emplace_back(node.op->name);
  }
  return out;
}

TEST(RecomputeRows, a_gradient_that_nobody_waits_for_comes_after_the_one_that_something_is_made_again_for) {
  const std::vector<std::string> ops = backward_ops(1);
  EXPECT_LT(std::find(ops.begin(), ops.end(), "linear_weight_grad"), std::find(ops.begin(), ops.end(), "matmul"));
}

TEST(RecomputeRows, a_gradient_that_ranks_exchange_comes_first) {
  const std::vector<std::string> ops = backward_ops(2);
  EXPECT_LT(std::find(ops.begin(), ops.end(), "matmul"), std::find(ops.begin(), ops.end(), "linear_weight_grad"));
}

TEST(RecomputeRows, an_op_whose_operands_are_gone_stays) {
  const auto twice_relu = [](const Tensor& x) { return relu(scale(x, 2)); };  // relu's gradient reads its result
  const Program before = layers(twice_relu, 2);
  EXPECT_EQ(count(recompute_rows(before), "relu"), count(before, "relu"));
  EXPECT_EQ(count(recompute_rows(before), "scale"), count(before, "scale"));
}

}  // namespace
}  // namespace trireme::recompute_test
