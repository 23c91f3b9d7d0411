#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/grad/gradients.h"
#include "trireme/nn/optimizer.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::early_updates_test {
namespace {

Program early_updates(const Program& program, const Rates& rates = {}) {
  return find_pass("early_updates").run(program, {.rates = rates});
}

constexpr int kLayers = 4;
constexpr int64_t kWidth = 64;

// A chain of products with the update of every weight at its end.
Graph chain(const Optimizer& optimizer, bool shared_factor, double lr_scale = 1) {
  Graph graph("chain");
  Tensor x(graph, graph.add_input("x", {DType::kF32, {2, kWidth}}, Role::kData));
  std::vector<Tensor> weights;
  for (int i = 0; i < kLayers; ++i) {
    weights.emplace_back(graph,
                         graph.add_input(fmt::format("w{}", i), {DType::kF32, {kWidth, kWidth}}, Role::kParameter));
    x = relu(matmul(x, weights.back()));
  }
  const Tensor loss = mean(square(x));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, weights);
  const Tensor lr(graph, graph.add_input("lr", {DType::kF32, {}}, Role::kSchedule));
  const Tensor step(graph, graph.add_input("step", {DType::kI64, {}}, Role::kSchedule));
  graph.set_phase(Phase::kUpdate);
  const Tensor rate = lr_scale == 1 ? lr : scale(lr, lr_scale);
  Tensor factor = constant(graph, {DType::kF32, {}}, 1);
  if (shared_factor) {
    for (const Tensor& grad : grads) factor = add(factor, square_sum(grad));
  }
  for (int i = 0; i < kLayers; ++i) {
    const auto k = static_cast<size_t>(i);
    nn::add_update(optimizer, {fmt::format("w{}", i), weights[k], grads[k], rate, step, factor});
  }
  graph.set_phase(Phase::kForward);
  return graph;
}

Program program_of(const Graph& graph, int ranks) {
  return partition(graph, data_parallel(graph, ranks));
}

// How many updates have been made when the last backward product is.
int early(const Program& program) {
  int updates = 0;
  int before_last_product = 0;
  for (const Node& node : program.graph.nodes()) {
    if (node.op->name.ends_with("_update")) ++updates;
    if (node.op->name == "linear_weight_grad") before_last_product = updates;
  }
  EXPECT_EQ(updates, kLayers);
  return before_last_product;
}

TEST(EarlyUpdates, an_update_follows_its_gradient) {
  const Program before = program_of(chain(AdamW{}, false), 1);
  EXPECT_EQ(early(before), 0);
  const Program after = early_updates(before);
  EXPECT_THAT(verify(after), testing::IsEmpty());
  EXPECT_EQ(early(after), kLayers - 1);
}

TEST(EarlyUpdates, a_learning_rate_that_is_scaled_for_a_group_keeps_no_update_back) {
  const Program after = early_updates(program_of(chain(AdamW{}, false, 0.5), 1));
  EXPECT_THAT(verify(after), testing::IsEmpty());
  EXPECT_EQ(early(after), kLayers - 1);
}

TEST(EarlyUpdates, an_op_that_the_model_calls_an_update_is_none) {
  Graph graph = chain(Sgd{}, false);
  const Program before = program_of(graph, 1);
  const Tensor x(graph, graph.input("x").value);
  graph.set_scope("update/w0");  // its last node, which no gradient waits for
  graph.add_output("y", square(x).id());
  const Program after = early_updates(program_of(graph, 1));
  EXPECT_THAT(verify(after), testing::IsEmpty());
  EXPECT_EQ(after.graph.nodes().back().op->name, "square") << "it stays where it stood";
  EXPECT_EQ(early(after), early(early_updates(before)));
}

TEST(EarlyUpdates, clipping_is_of_the_update_phase_and_stays_where_it_stands) {
  Graph graph = chain(Sgd{}, true);
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "square_sum") EXPECT_EQ(node.phase, Phase::kUpdate);
  }
  EXPECT_EQ(early(early_updates(program_of(graph, 1))), 0);
}

TEST(EarlyUpdates, nothing_moves_where_all_gradients_must_be_known_first) {
  const Program before = program_of(chain(AdamW{}, true), 1);
  EXPECT_EQ(early(early_updates(before)), 0);
}

Rates with_link(double bytes_per_s) {
  return {.links = {.link = {.latency_s = 0, .bytes_per_s = bytes_per_s}, .step_s = 0},
          .machine = Machine::this_host()};
}

TEST(EarlyUpdates, an_update_lets_the_next_collective_begin_before_it_waits) {
  const Program after = early_updates(program_of(chain(AdamW{}, false), 2), with_link(1e15));
  EXPECT_THAT(verify(after), testing::IsEmpty());
  std::map<ValueId, size_t> begun;  // by value, how many all-reduces had begun when it was made
  size_t all_reduces = 0;
  for (const Node& node : after.graph.nodes()) {
    if (node.op->name == "adam_update") {
      const auto gradient = begun.find(node.inputs[1]);
      ASSERT_NE(gradient, begun.end());
      EXPECT_TRUE(all_reduces > gradient->second || all_reduces == kLayers + 1);  // the loss has one too
    }
    if (node.op->name != "all_reduce") continue;
    ++all_reduces;
    for (const ValueId id : node.outputs) begun[id] = all_reduces;
  }
  EXPECT_EQ(early(after), kLayers - 2) << "the last two wait for the end";
}

// A product takes microseconds, a gradient's way milliseconds.
TEST(EarlyUpdates, backward_waits_for_no_sum_that_is_longer_under_way_than_it_computes) {
  const Program before = program_of(chain(AdamW{}, false), 2);
  const Program after = early_updates(before, with_link(1e6));
  EXPECT_THAT(verify(after), testing::IsEmpty());
  EXPECT_EQ(early(after), 0);
  EXPECT_EQ(after.graph.nodes().size(), before.graph.nodes().size());
}

TEST(EarlyUpdates, fewer_gradients_are_alive_at_once) {
  const Program before = program_of(chain(Sgd{}, false), 1);
  const int64_t late_bytes = plan_execution(before).arena().bytes;
  EXPECT_LT(plan_execution(early_updates(before)).arena().bytes, late_bytes - 2 * kWidth * kWidth * 4);
}

}  // namespace
}  // namespace trireme::early_updates_test
