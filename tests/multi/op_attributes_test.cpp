// What may be asked of single ops besides cuts: contracts 5.2 and 6.2, an attribute each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/multi/contract_support.h"
#include "tests/multi/small_graphs.h"
#include "trireme/base/error.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/registry.h"

namespace trireme::op_attributes_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

int count(const Program& program, std::string_view op) {
  int out = 0;
  for (const Node& node : program.graph.nodes()) out += node.op->name == op ? 1 : 0;
  return out;
}

Parallel asking(std::vector<OpRule> ops, std::string mesh = "") {
  Parallel out;
  out.mesh = std::move(mesh);
  out.ops = std::move(ops);
  return out;
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected, float allowed) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], allowed * (1 + std::fabs(expected[i]))) << i;
}

void expect_reads_back(const Graph& graph, const Strategy& strategy) {
  const std::string text = to_string(graph, strategy);
  EXPECT_EQ(to_string(graph, parse_strategy(text, graph)), text);
}

// -- cross_batch ---------------------------------------------------------------------------------------

// x normalised by statistics of the batch, and the gradient of what follows.
Graph normalised(int64_t batch, int64_t first, int64_t whole) {
  Graph graph;
  const Tensor all = data_input(graph, "x", {whole, 4});
  const Tensor x = batch == whole ? all : slice(all, 0, first, batch);
  const Tensor w = parameter(graph, "w", {4, 4});
  const Tensor h = matmul(x, w);
  graph.set_scope("norm");
  const Tensor centred = sub(h, mean(h, {0}, true));
  const Tensor y = mul(centred, rsqrt(add_scalar(mean(square(centred), {0}, true), 0.1)));
  graph.set_scope("");
  const Tensor loss = mean(square(add_scalar(y, 0.5)) * 0.25 + mul(y, sigmoid(h)));
  graph.add_output("loss", loss.id());
  graph.add_output("grad", gradients(loss, std::vector<Tensor>{w})[0].id());
  return graph;
}

// Each rank of two by itself, on its half of the batch: what data parallel ranks do whose network sums over samples.
TEST(OpAttributes, cross_batch_gives_each_rank_the_statistics_and_gradients_of_its_own_samples) {
  const Graph graph = normalised(8, 0, 8);
  const Parallel own = asking({{"norm/reduce_sum", "cross_batch mean"}});
  const OnRanks two = run_on_ranks(graph, 2, own);
  const OnRanks first = run_on_ranks(normalised(4, 0, 8), 1, {});
  const OnRanks second = run_on_ranks(normalised(4, 4, 8), 1, {});
  const OnRanks together = run_on_ranks(graph, 1, {});
  std::vector<float> mean_of_both = first.outputs.at("grad");
  for (size_t i = 0; i < mean_of_both.size(); ++i)
    mean_of_both[i] = (mean_of_both[i] + second.outputs.at("grad")[i]) / 2;
  expect_near(two.outputs.at("grad"), mean_of_both, 1e-6F);
  EXPECT_NEAR(two.outputs.at("loss")[0], (first.outputs.at("loss")[0] + second.outputs.at("loss")[0]) / 2, 1e-6F);
  EXPECT_GT(std::fabs(two.outputs.at("loss")[0] - together.outputs.at("loss")[0]), 1e-4F)
      << "it makes no difference here";
  expect_near(run_on_ranks(graph, 2, {}).outputs.at("grad"), together.outputs.at("grad"), 1e-6F);
  expect_reads_back(graph, two.strategy);
}

TEST(OpAttributes, cross_batch_of_a_sum_and_a_maximum_is_that_of_the_ranks_own_rows) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {8, 4});
  graph.set_scope("stat");
  graph.add_output("sum", reduce_sum(x, {0}).id());
  graph.add_output("max", reduce_max(x, {0}).id());
  graph.set_scope("");
  Graph half;
  const Tensor mine = slice(data_input(half, "x", {8, 4}), 0, 0, 4);
  half.add_output("sum", reduce_sum(mine, {0}).id());
  half.add_output("max", reduce_max(mine, {0}).id());
  const OnRanks two =
      run_on_ranks(graph, 2, asking({{"stat/reduce_sum", "cross_batch"}, {"stat/reduce_max", "cross_batch"}}));
  EXPECT_EQ(two.outputs, run_on_ranks(half, 1, {}).outputs);  // rank 0's
  EXPECT_EQ(two.total_bytes(), 0);
}

// Terms of the ranks' own pass through the slice that the gradient of a pad is, which is cut too.
TEST(OpAttributes, cross_batch_of_what_is_padded_reads_back) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {4, 3, 6});
  graph.set_scope("stat");
  const Tensor sums = reduce_sum(x, {0});
  graph.set_scope("");
  const Tensor loss = mean(square(mul(data_input(graph, "z", {4, 5, 6}), pad(sums, {2, 0}, {0, 0}))));
  graph.add_output("loss", loss.id());
  graph.add_output("grad", gradients(loss, std::vector<Tensor>{x})[0].id());
  Parallel parallel = asking({{"stat/reduce_sum", "cross_batch"}}, "dp=2,tp=2");
  parallel.dataset = "[dp, -, tp]";
  const Strategy strategy = semi_auto(graph, 4, parallel);
  const std::string text = to_string(graph, strategy);
  EXPECT_THAT(text,
              HasSubstr("node \"grad/stat/broadcast_to\" vouched=\"[-, -, tp] partial(sum: dp) -> [dp, -, tp]\""));
  expect_reads_back(graph, strategy);
  const OnRanks four = run_on_ranks(graph, 4, parallel);
  const OnRanks read = run_on_ranks(graph, 4, {.strategy = text});
  EXPECT_EQ(read.outputs, four.outputs);
}

// -- skip_redistribution -------------------------------------------------------------------------------

Graph reshaped() {
  Graph graph;
  const Tensor x = data_input(graph, "x", {2, 8});
  graph.set_scope("view");
  const Tensor y = reshape(x, {8, 2});
  graph.set_scope("");
  graph.add_output("y", y.id());
  const Tensor loss = mean(square(mul(y, data_input(graph, "weights", {8, 2}))));
  graph.add_output("grad", gradients(loss, std::vector<Tensor>{x})[0].id());
  return graph;
}

// Cut along dimension 1 a reshape to [8,2] cannot keep its cuts: what lies in one piece afterwards does not before.
TEST(OpAttributes, skip_redistribution_reshapes_the_pieces_as_they_come) {
  Parallel parallel = asking({{"view/reshape", "skip_redistribution"}}, "dp=2");
  parallel.dataset = "[-, dp]";
  const Graph graph = reshaped();
  const OnRanks two = run_on_ranks(graph, 2, parallel);
  parallel.ops.clear();
  const OnRanks usual = run_on_ranks(graph, 2, parallel);
  expect_near(usual.outputs.at("y"), run_on_ranks(graph, 1, {}).outputs.at("y"), 0);
  for (const Node& node : two.program.graph.nodes()) {
    if (node.op->name != "reshape" || two.program.graph.scope_of(node) != "view") continue;
    EXPECT_EQ(to_string(two.program.graph.type(node.inputs[0])), "f32[2,4]");
    EXPECT_EQ(to_string(two.program.graph.type(node.outputs[0])), "f32[4,2]");
  }
  // Rank 0 holds columns 0 to 3, [2,4], which it reads as [4,2]; so the first row of the result is x[0,0], x[0,1].
  std::vector<float> expected;
  for (const int64_t part : {0, 4}) {
    for (const int64_t row : {0, 8}) {
      for (int64_t i = 0; i < 4; ++i) expected.push_back(element_of("x", row + part + i));
    }
  }
  expect_near(two.outputs.at("y"), expected, 0);
  expect_reads_back(graph, two.strategy);
}

TEST(OpAttributes, skip_redistribution_changes_nothing_where_the_cuts_pass_through) {
  const Graph graph = reshaped();
  const OnRanks two = run_on_ranks(graph, 2, asking({{"view/reshape", "skip_redistribution"}}));
  expect_near(two.outputs.at("y"), run_on_ranks(graph, 1, {}).outputs.at("y"), 0);
  expect_near(two.outputs.at("grad"), run_on_ranks(graph, 1, {}).outputs.at("grad"), 1e-7F);
}

// -- self_define_shard ---------------------------------------------------------------------------------

// A cumulative sum cannot be cut along the dimension it runs over; said otherwise, each rank begins anew.
TEST(OpAttributes, self_define_shard_runs_an_op_on_pieces_that_its_rule_forbids) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {2, 8});
  graph.set_scope("running");
  graph.add_output("y", cumsum(x, 1).id());
  const OnRanks two = run_on_ranks(graph, 2, asking({{"running/cumsum", "self_define_shard [-, dp] -> [-, dp]"}}));
  std::vector<float> expected;
  for (int64_t row = 0; row < 2; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < 8; ++i) {
      sum = i % 4 == 0 ? element_of("x", row * 8 + i) : sum + element_of("x", row * 8 + i);
      expected.push_back(sum);
    }
  }
  expect_near(two.outputs.at("y"), expected, 1e-6F);
  expect_reads_back(graph, two.strategy);
}

TEST(OpAttributes, what_an_op_cannot_have_is_refused) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {8, 8});
  graph.set_scope("a");
  graph.add_output("y", relu(matmul(x, parameter(graph, "w", {8, 8}))).id());
  const auto refused = [&](const std::string& pattern, const std::string& text) {
    return error_of([&] { semi_auto(graph, 2, asking({{pattern, text}})); });
  };
  EXPECT_THAT(refused("a", "cross_batch"), HasSubstr("an attribute is for ops; name them after a '/'"));
  EXPECT_THAT(refused("a/relu", "cross_batch"), HasSubstr("cross_batch of relu of 'a': the op reduces no dimension"));
  EXPECT_THAT(refused("a/relu", "cross_bach"), HasSubstr("Did you mean 'cross_batch'?"));
  EXPECT_THAT(refused("a/relu", "skip_redistribution"), HasSubstr("only change their operand's shape, like reshape"));
  EXPECT_THAT(refused("a/relu", "self_define_shard [dp, -]"), HasSubstr("has no '->'"));
  EXPECT_THAT(refused("a/relu", "self_define_shard [dp, -] -> [-, -]"),
              HasSubstr("of its pieces the op makes f32[4,8] as result 0, and the layout asked for gives f32[8,8]"));
  EXPECT_THAT(refused("a/matmul", "self_define_shard [-, dp], [-, -] -> [-, -]"),
              HasSubstr("the op does not take its pieces"));
  EXPECT_THAT(refused("a/matmul", "self_define_shard [-, dp] -> [-, -]"),
              HasSubstr("gives 1 layouts of operand of matmul of 'a'; it has 2"));
  EXPECT_THAT(refused("b/relu", "cross_batch"), HasSubstr("rule 'b/relu' matches no part of the model"));
}

// -- interleaved_parallel ------------------------------------------------------------------------------

Graph two_products() {
  Graph graph;
  const Tensor x = data_input(graph, "x", {16, 8});
  const Tensor up = parameter(graph, "up", {8, 12});
  const Tensor down = parameter(graph, "down", {12, 4});
  graph.set_scope("first");
  Tensor h = matmul(x, up);
  graph.set_scope("act");
  h = gelu(h);
  graph.set_scope("second");
  h = matmul(h, down);
  graph.set_scope("");
  const Tensor loss = mean(square(h));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, std::vector<Tensor>{up, down});
  graph.add_output("up.grad", grads[0].id());
  graph.add_output("down.grad", grads[1].id());
  return graph;
}

TEST(OpAttributes, contracts_6_5_4_a_matrix_of_2_2_2_with_interleaved_parallel_needs_four_ranks_and_changes_no_result) {
  const Graph graph = two_products();
  const OnRanks one = run_on_ranks(graph, 1, {});
  const std::string mesh = "dp=2,sp=2,interleaved_parallel=2";
  const Parallel plain = asking({{"first", "[dp, -], [-, sp]"}, {"second", "[dp, sp], [sp, -]"}}, "dp=2,sp=2");
  const Parallel copies = asking({{"first", "[dp*interleaved_parallel, -], [-, sp]"},
                                  {"act", "[dp*interleaved_parallel, sp]"},
                                  {"second", "[dp, sp*interleaved_parallel], [sp*interleaved_parallel, -] -> [dp, -]"}},
                                 mesh);
  const OnRanks without = run_on_ranks(graph, 4, plain);
  const OnRanks with = run_on_ranks(graph, 4, copies);
  EXPECT_EQ(with.strategy.mesh.devices(), 4);
  for (const auto& [name, expected] : one.outputs) expect_near(with.outputs.at(name), expected, 1e-6F);
  // Both products, and the three of their gradients, are computed twice on each rank.
  EXPECT_EQ(count(without.program, "matmul") + count(without.program, "linear_weight_grad"), 5);
  EXPECT_EQ(count(with.program, "matmul") + count(with.program, "linear_weight_grad"), 10) << to_string(with.program);
  EXPECT_EQ(count(with.program, "gelu"), 2);
  EXPECT_EQ(with.bytes, without.bytes);
  expect_reads_back(graph, with.strategy);
}

TEST(OpAttributes, copies_that_do_not_divide_or_have_no_axis_are_refused) {
  const Graph graph = two_products();
  const auto refused = [&](const std::string& cuts, const std::string& mesh) {
    return error_of([&] { semi_auto(graph, 4, asking({{"first", cuts}}, mesh)); });
  };
  EXPECT_THAT(refused("[dp*interleaved_parallel, -], [-, -]", "dp=4"),
              HasSubstr("the mesh has no axis 'interleaved_parallel'"));
  EXPECT_THAT(refused("[interleaved_parallel*dp, -], [-, -]", "dp=4,interleaved_parallel=2"),
              HasSubstr("'interleaved_parallel' must be the last axis of one dimension"));
  EXPECT_THAT(refused("[dp*interleaved_parallel, -], [-, -]", "dp=4,interleaved_parallel=3"),
              HasSubstr("3 copies on each of 4 ranks do not divide factor"));
  EXPECT_THAT(refused("[dp*interleaved_parallel, -], [-, interleaved_parallel]", "dp=4,interleaved_parallel=2"),
              HasSubstr("cannot be computed in copies beside another one"));
  EXPECT_THAT(refused("[-, -], [-, -]", "dp=2,interleaved_parallel=2"),
              HasSubstr("mesh 'dp=2,interleaved_parallel=2' has 2 devices"));
}

}  // namespace
}  // namespace trireme::op_attributes_test
