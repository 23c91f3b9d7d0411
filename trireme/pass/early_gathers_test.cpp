#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::early_gathers_test {
namespace {

Program early_gathers(const Program& program) {
  return find_pass("early_gathers").run(program, {});
}

// A chain of products whose weights are stored in slices and read whole.
Program sliced_chain(int layers) {
  Graph graph("chain");
  Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 16}}, Role::kData));
  Asks asks;
  const Mesh mesh({{"dp", 2}});
  asks.inputs.emplace_back(parse_layout("[dp, -]", mesh));
  for (int i = 0; i < layers; ++i) {
    const Tensor w(graph, graph.add_input(fmt::format("w{}", i), {DType::kF32, {16, 16}}, Role::kParameter));
    asks.inputs.emplace_back(parse_layout("[dp, -]", mesh));
    asks.seen_as[w.id()] = Layout::replicated(2);
    x = relu(matmul(x, w));
  }
  graph.add_output("y", x.id());
  return partition(graph, propagate(graph, mesh, asks));
}

std::vector<std::string> ops(const Program& program) {
  std::vector<std::string> out;
  for (const Node& node : program.graph.nodes()) out.emplace_back(node.op->name);
  return out;
}

TEST(EarlyGathers, each_begins_before_the_reader_of_the_one_before) {
  const Program before = sliced_chain(3);
  EXPECT_THAT(ops(before), testing::ElementsAre("all_gather", "matmul", "relu", "all_gather", "matmul", "relu",
                                                "all_gather", "matmul", "relu", "all_gather"));
  const Program after = early_gathers(before);
  EXPECT_THAT(verify(after), testing::IsEmpty());
  EXPECT_THAT(ops(after), testing::ElementsAre("all_gather", "all_gather", "matmul", "relu", "all_gather", "matmul",
                                               "relu", "matmul", "relu", "all_gather"));
}

TEST(EarlyGathers, one_weight_has_nothing_to_run_under) {
  const Program before = sliced_chain(1);
  EXPECT_EQ(to_string(early_gathers(before)), to_string(before));
}

// The last weight of the forward pass is the first of the backward pass.
TEST(EarlyGathers, what_is_whole_when_its_gather_would_begin_is_not_gathered_again) {
  Graph graph("there_and_back");
  const Mesh mesh({{"dp", 2}});
  Asks asks;
  Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 16}}, Role::kData));
  asks.inputs.emplace_back(parse_layout("[dp, -]", mesh));
  std::vector<Tensor> weights;
  for (int i = 0; i < 3; ++i) {
    const Tensor w(graph, graph.add_input(fmt::format("w{}", i), {DType::kF32, {16, 16}}, Role::kParameter));
    asks.inputs.emplace_back(parse_layout("[dp, -]", mesh));
    asks.seen_as[w.id()] = Layout::replicated(2);
    weights.push_back(w);
    x = relu(matmul(x, w));
  }
  graph.set_phase(Phase::kBackward);
  for (int i = 3; i-- > 0;) x = matmul(x, weights[static_cast<size_t>(i)]);
  graph.add_output("y", x.id());
  const Program before = partition(graph, propagate(graph, mesh, asks));
  EXPECT_EQ(std::ranges::count(ops(before), "all_gather"), 7) << "the last is of the output";
  const Program after = early_gathers(before);
  EXPECT_THAT(verify(after), testing::IsEmpty());
  EXPECT_THAT(ops(after), testing::ElementsAre("all_gather", "all_gather", "matmul", "relu", "all_gather", "matmul",
                                               "relu", "matmul", "relu", "all_gather", "matmul", "all_gather", "matmul",
                                               "matmul", "all_gather"));
}

TEST(EarlyGathers, twice_is_once) {
  const Program once = early_gathers(sliced_chain(4));
  EXPECT_EQ(ops(early_gathers(once)), ops(once));
}

}  // namespace
}  // namespace trireme::early_gathers_test
