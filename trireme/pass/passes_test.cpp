#include "trireme/pass/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/grad/gradients.h"
#include "trireme/nn/optimizer.h"
#include "trireme/op/build.h"
#include "trireme/op/registry.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/partition/partition.h"

namespace trireme::passes_test {
namespace {

using testing::HasSubstr;

// Two weight gradients of a batch cut over two ranks.
Program two_gradients() {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 4}}, Role::kData));
  const Tensor y(graph, graph.add_input("y", {DType::kF32, {8, 4}}, Role::kData));
  graph.add_output("a", linear_weight_grad(x, y).id());
  graph.add_output("b", linear_weight_grad(y, x).id());
  return partition(graph, data_parallel(graph, 2));
}

int all_reduces(const Program& program) {
  int out = 0;
  for (const Node& node : program.graph.nodes()) out += node.op->name == "all_reduce" ? 1 : 0;
  return out;
}

std::string error_of(const PassOptions& options) {
  try {
    run_passes(two_gradients(), options);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kNotFound);
    return e.what();
  }
  return "";
}

TEST(Pipeline, runs_all_passes_unless_told_otherwise) {
  EXPECT_EQ(all_reduces(two_gradients()), 2);
  EXPECT_EQ(all_reduces(run_passes(two_gradients())), 1);
}

// Two layers with a norm, trained with clipping, sliced state, and perhaps micro-batches.
Program training_program(int level, int64_t micro_batches) {
  Graph graph("training");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {256, 512}}, Role::kData));
  const Tensor gamma(graph, graph.add_input("gamma", {DType::kF32, {512}}, Role::kParameter));
  std::vector<Tensor> weights{gamma};
  for (const char* name : {"w", "w.m"})
    weights.emplace_back(graph, graph.add_input(name, {DType::kF32, {512, 512}}, Role::kParameter));
  const Tensor h = gelu(matmul(rms_norm(x, gamma).y, weights[1]), true);
  const Tensor loss = mean(square(matmul(h, weights[2])));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, weights);
  const Tensor lr(graph, graph.add_input("lr", {DType::kF32, {}}, Role::kSchedule));
  const Tensor step(graph, graph.add_input("step", {DType::kI64, {}}, Role::kSchedule));
  graph.set_phase(Phase::kUpdate);
  const Tensor factor = clip_scale(add(square_sum(grads[1]), square_sum(grads[2])), 1);
  for (size_t i = 0; i < weights.size(); ++i)
    nn::add_update(Lamb{}, {fmt::format("p{}", i), weights[i], grads[i], lr, step, factor});
  EXPECT_THAT(verify(graph), testing::IsEmpty());
  const Parallel parallel{.accumulation = micro_batches, .optimizer = {.level = level, .threshold_kb = 0}};
  return in_micro_batches(partition(graph, semi_auto(graph, 2, parallel)));
}

TEST(Pipeline, what_a_graph_says_of_training_is_true_after_every_pass) {
  for (const int level : {0, 1, 2, 3}) {
    for (const int64_t micro_batches : {1, 2}) {
      const Program program = run_passes(training_program(level, micro_batches), {.recompute = {.rows = true}});
      const Graph& graph = program.graph;
      const std::string text = to_string(graph);
      EXPECT_EQ(to_string(parse_graph(text, find_op_base)), text);
      ASSERT_EQ(graph.updates().size(), 3U);
      std::set<ValueId> read, linked;
      bool again = false, of_node = false;
      for (const Node& node : graph.nodes()) {
        again = again || node.again;
        of_node = of_node || node.gradient_of >= 0;
        if (node.phase == Phase::kUpdate) read.insert(node.inputs.begin(), node.inputs.end());
      }
      for (const auto& [gradient, of] : graph.gradients()) linked.insert(of);
      EXPECT_TRUE(again && of_node) << text;
      for (const Update& update : graph.updates()) {
        EXPECT_TRUE(read.contains(update.gradient)) << "level " << level << ", %" << update.gradient << "\n" << text;
        EXPECT_EQ(update.states.size(), 2U);
        for (const ValueId state : update.states) {
          EXPECT_EQ(graph.type(state).shape, graph.type(update.gradient).shape)
              << "the gradient as the update reads it";
        }
        EXPECT_TRUE(linked.contains(update.parameter));
      }
    }
  }
}

TEST(Pipeline, a_disabled_pass_does_not_run) {
  EXPECT_EQ(all_reduces(run_passes(two_gradients(), {.disabled = {"fuse_collectives"}})), 2);
}

TEST(Pipeline, options_reach_the_pass) {
  EXPECT_EQ(all_reduces(run_passes(two_gradients(), {.fusion = {.all_reduce = {.bytes = 64}}})), 2);
}

TEST(Pipeline, stops_after_the_pass_named) {
  EXPECT_EQ(all_reduces(run_passes(two_gradients(), {.stop_after = "fuse_collectives"})), 1);
}

// A pass that is left out, or not asked for, ends the row all the same.
TEST(Pipeline, stops_after_a_pass_that_does_not_run) {
  EXPECT_EQ(all_reduces(run_passes(two_gradients(), {.stop_after = "recompute"})), 2);
  EXPECT_EQ(all_reduces(run_passes(two_gradients(), {.disabled = {"loss_in_pieces"}, .stop_after = "loss_in_pieces"})),
            2);
}

TEST(Pipeline, a_name_that_is_no_pass_is_refused_with_the_likely_one) {
  EXPECT_THAT(error_of({.disabled = {"fuse_colectives"}}),
              HasSubstr("no pass named 'fuse_colectives'. Did you mean 'fuse_collectives'?"));
  EXPECT_THAT(error_of({.stop_after = "nonsense"}), HasSubstr("no pass named 'nonsense'."));
}

TEST(Pipeline, writes_the_program_after_each_pass_that_changed_it) {
  std::string root = std::filesystem::temp_directory_path() / "trireme-pass-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const Program fused = run_passes(two_gradients(), {.dump_dir = root});
  EXPECT_EQ(read_file(root + "/009_fuse_collectives.program"), to_string(fused));
  std::filesystem::remove(root + "/009_fuse_collectives.program");
  run_passes(fused, {.dump_dir = root});
  EXPECT_TRUE(std::filesystem::is_empty(root)) << "nothing changed";
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace trireme::passes_test
