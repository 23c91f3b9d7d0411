// Weights in slices whose ranks are on several hosts: over links of several levels they come in several steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/multi/loss_curve.h"
#include "tests/multi/training_support.h"
#include "trireme/op/structural.h"
#include "trireme/pass/recompute_rules.h"

namespace trireme::levels_of_links_test {
namespace {

using namespace testing_support;

Graph step_of(int64_t width, DType compute = DType::kF32) {
  nn::Mlp mlp({12, width, width, width, width, 10});
  return training_step(mlp_model(mlp), class_loss(), mlp_batch(), AdamW{}, {.name = "mlp", .compute = compute});
}

// Pairs of ranks on a host, with slow links between the hosts.
Parallel on_pairs(int zero, int64_t micro_batches = 1) {
  Parallel out{.accumulation = micro_batches};
  out.optimizer = {.level = zero, .threshold_kb = 1};
  Machine machine = Machine::this_host();
  machine.hosts = 2;
  machine.devices_per_host = 2;
  machine.levels = {{"host", 2, 1e-6, 1e10}, {"rack", 4, 1e-6, 1e7}};
  out.communication.machine = machine;
  return out;
}

// Without the passes that put exchanges together.
Compiled compiled(const Graph& graph, const Parallel& parallel, const Recompute& recompute = {}) {
  return compile(graph, {.ranks = 4,
                         .parallel = parallel,
                         .passes = {.recompute = recompute, .disabled = {"fuse_collectives", "early_gathers"}}});
}

// Exchanges that bring matrices, and by how many steps the longest comes. (Biases are brought for recomputation alone.)
struct Brought {
  int exchanges = 0, most_steps = 0;
};
Brought brought(const Compiled& compiled) {
  Brought out;
  const Graph& graph = compiled.program().graph;
  std::vector<int> steps(graph.values().size(), 0);
  for (const Node& node : graph.nodes()) {
    const bool is_of_matrix = node.outputs.size() == 1 && graph.type(node.outputs[0]).shape.rank() == 2;
    if (node.phase == Phase::kUpdate || !is_of_matrix || !brought_weight(graph, node)) continue;
    ++out.exchanges;
    const auto of = [&](ValueId id) -> int& { return steps[static_cast<size_t>(id)]; };
    of(node.outputs[0]) = of(node.inputs[0]) + 1;
    out.most_steps = std::max(out.most_steps, of(node.outputs[0]));
  }
  return out;
}

TEST(LevelsOfLinks, a_weight_in_slices_comes_in_several_steps) {
  EXPECT_GT(brought(compiled(step_of(64), on_pairs(3))).most_steps, 1);
}

TEST(LevelsOfLinks, a_weight_is_brought_for_each_pass_of_each_micro_batch) {
  const Brought once = brought(compiled(step_of(64), on_pairs(3)));
  const Brought thrice = brought(compiled(step_of(64), on_pairs(3, 3)));
  EXPECT_EQ(thrice.exchanges, 3 * once.exchanges);
}

TEST(LevelsOfLinks, what_is_brought_again_for_recomputation_serves_the_backward_pass) {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 2, .width = 64, .heads = 2});
  const Graph graph = language_step(gpt, Sgd{}, false, 1);
  const int without = brought(compiled(graph, on_pairs(3, 2))).exchanges;
  const Compiled again = compiled(graph, on_pairs(3, 2), {.blocks = -1});
  EXPECT_TRUE(std::ranges::any_of(again.program().graph.nodes(), &Node::again));
  EXPECT_EQ(brought(again).exchanges, without);
}

TEST(LevelsOfLinks, a_weight_that_is_kept_whole_is_brought_once) {
  const Graph graph = step_of(64);
  const auto exchanges = [&](int64_t micro_batches) {
    return brought(compiled(graph, on_pairs(3, micro_batches), {.optimizer_communication = false})).exchanges;
  };
  EXPECT_EQ(exchanges(3), exchanges(1));
  EXPECT_LT(exchanges(1), brought(compiled(graph, on_pairs(3))).exchanges);
}

// A weight in the type in which it is multiplied is made once a step, for all micro-batches: it stays.
TEST(LevelsOfLinks, a_cast_of_a_weight_is_not_made_again_where_later_micro_batches_read_it) {
  const Graph graph = step_of(256, DType::kBF16);
  const auto casts = [&](int64_t micro_batches, bool rows) {
    const Compiled out = compiled(graph, on_pairs(0, micro_batches), {.rows = rows});
    return std::ranges::count_if(out.program().graph.nodes(), [&](const Node& node) {
      return is_cast(node) && brought_parameter(out.program().graph, node.outputs[0]) != kNoValue;
    });
  };
  EXPECT_GT(casts(1, true), casts(1, false));
  EXPECT_EQ(casts(3, true), casts(3, false));
}

// Updated weights are gathered and unpacked while others are updated: two at a time, if they are large.
TEST(LevelsOfLinks, what_gathers_of_updated_weights_are_packed_in_is_of_two_at_a_time) {
  constexpr int64_t kWidth = 4096;
  for (const int zero : {1, 2}) {
    const Compiled step = compiled(step_of(kWidth), on_pairs(zero));
    const ExecutionPlan& plan = step.plan();
    std::vector<Buffer> packed;
    for (const Action& action : plan.actions) {
      if (action.op->name != "all_gather" || action.scratch < 0) continue;
      const Buffer& scratch = plan.buffers[static_cast<size_t>(action.scratch)];
      if (scratch.bytes == kWidth * kWidth * 4) packed.push_back(scratch);
    }
    EXPECT_EQ(packed.size(), 3) << "zero " << zero;
    for (int i = 0; i < static_cast<int>(plan.actions.size()); ++i) {
      EXPECT_LE(std::ranges::count_if(packed, [&](const Buffer& b) { return b.first <= i && i < b.last; }), 2)
          << "zero " << zero << ", action " << i;
    }
  }
}

TEST(LevelsOfLinks, losses_are_those_of_one_rank) {
  const Graph graph = step_of(64);
  const std::vector<Curve> one = train_curves(graph, 1, {}, 0.01F);
  for (const int zero : {1, 2, 3}) {
    const std::vector<Curve> four = train_curves(graph, 4, on_pairs(zero, 3), 0.01F);
    for (size_t i = 0; i < one[0].losses.size(); ++i)
      EXPECT_NEAR(four[0].losses[i], one[0].losses[i], rounding_share(graph) * one[0].losses[i]) << "zero " << zero;
  }
}

}  // namespace
}  // namespace trireme::levels_of_links_test
