#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"

namespace trireme::propagate_test {
namespace {

using testing::HasSubstr;

Tensor input(Graph& graph, const std::string& name, Shape shape, Role role = Role::kParameter) {
  return {graph, graph.add_input(name, {DType::kF32, shape}, role)};
}

std::vector<Layout> layouts_of(const std::vector<std::string>& texts, const Mesh& mesh) {
  std::vector<Layout> out;
  for (const std::string& text : texts) out.push_back(parse_layout(text, mesh));
  return out;
}

std::string layout_of(const Graph& graph, const Strategy& strategy, const Tensor& value) {
  return to_string(value_layouts(graph, strategy)[static_cast<size_t>(value.id())], strategy.mesh);
}

TEST(DataParallel, cuts_data_over_the_ranks_and_replicates_the_rest) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor w = input(graph, "w", {4, 4});
  const Tensor m = input(graph, "w.m", {4, 4}, Role::kState);
  const Tensor lr = input(graph, "lr", {}, Role::kSchedule);
  const Tensor y = matmul(x, w);
  graph.add_output("y", y.id());
  graph.add_output("w", mul(w, mul(m, lr)).id(), w.id());
  const Strategy strategy = data_parallel(graph, 4);
  EXPECT_EQ(to_string(strategy.mesh), "dp=4");
  EXPECT_EQ(layout_of(graph, strategy, x), "[dp, -]");
  for (const Tensor& whole : {w, m}) EXPECT_EQ(layout_of(graph, strategy, whole), "[-, -]");
  EXPECT_TRUE(strategy.inputs[3].is_replicated());
  EXPECT_EQ(layout_of(graph, strategy, y), "[dp, -]");
  EXPECT_EQ(to_string(strategy.outputs[0], strategy.mesh), "[-, -]") << "outputs are whole on every rank";
}

TEST(DataParallel, a_weight_gradient_is_partial_over_the_ranks) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor dy = input(graph, "dy", {8, 5}, Role::kData);
  const Tensor dw = linear_weight_grad(x, dy);
  graph.add_output("dw", dw.id());
  EXPECT_EQ(layout_of(graph, data_parallel(graph, 2), dw), "[-, -] partial(sum: dp)");
}

TEST(DataParallel, a_batch_that_does_not_divide_is_refused_with_batches_that_would) {
  const auto error_of = [](int64_t batch, int64_t ranks) -> std::string {
    Graph graph;
    input(graph, "image", {batch, 4}, Role::kData);
    try {
      data_parallel(graph, ranks);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(30, 8),
            "the batch of 30 samples ('image' f32[30,4]) does not divide over 8 ranks; use 24 or "
            "32 samples, or 6 ranks");
  EXPECT_THAT(error_of(3, 4), HasSubstr("use 4 samples, or 3 ranks"));
  EXPECT_THAT(error_of(4, 0), HasSubstr("parallel over 0 ranks; it must be 1 or more"));
}

TEST(DataParallel, data_without_a_batch_is_refused) {
  Graph graph;
  input(graph, "x", {}, Role::kData);
  EXPECT_THROW(data_parallel(graph, 2), Error);
}

TEST(Propagate, column_then_row_parallel_products_leave_one_partial_sum) {
  Graph graph;
  const Mesh mesh({{"tp", 2}});
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor up = input(graph, "up", {4, 16});
  const Tensor down = input(graph, "down", {16, 4});
  const Tensor h = gelu(matmul(x, up));
  const Tensor y = matmul(h, down);
  graph.add_output("y", y.id());
  const Strategy strategy = propagate(graph, mesh, layouts_of({"[-, -]", "[-, tp]", "[tp, -]"}, mesh));
  EXPECT_EQ(layout_of(graph, strategy, h), "[-, tp]");
  EXPECT_EQ(layout_of(graph, strategy, y), "[-, -] partial(sum: tp)");
}

TEST(Propagate, partial_sums_flow_through_linear_ops_only) {
  Graph graph;
  const Mesh mesh({{"tp", 2}});
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor w = input(graph, "w", {4, 4});
  const Tensor p = matmul(x, w);
  const Tensor linear = scale(add(p, p), 3);
  const Tensor curved = gelu(linear);
  const Tensor shifted = add(p, x);  // x is no partial sum: adding it on every rank would count it twice
  graph.add_output("a", curved.id());
  graph.add_output("b", shifted.id());
  const Strategy strategy = propagate(graph, mesh, layouts_of({"[-, tp]", "[tp, -]"}, mesh));
  EXPECT_EQ(layout_of(graph, strategy, p), "[-, -] partial(sum: tp)");
  EXPECT_EQ(layout_of(graph, strategy, linear), "[-, -] partial(sum: tp)");
  EXPECT_THAT(layout_of(graph, strategy, curved), testing::Not(HasSubstr("partial")));
  EXPECT_THAT(layout_of(graph, strategy, shifted), testing::Not(HasSubstr("partial")));
}

TEST(Propagate, the_largest_operand_wins_a_conflict) {
  Graph graph;
  const Mesh mesh({{"a", 2}});
  const Tensor big = input(graph, "big", {8, 4}, Role::kData);
  const Tensor small = input(graph, "small", {4});
  const Tensor y = mul(small, big);
  graph.add_output("y", y.id());
  EXPECT_EQ(layout_of(graph, propagate(graph, mesh, layouts_of({"[a, -]", "[a]"}, mesh)), y), "[a, -]");
  EXPECT_EQ(layout_of(graph, propagate(graph, mesh, layouts_of({"[-, -]", "[a]"}, mesh)), y), "[-, a]")
      << "without a conflict the small one is followed";
}

TEST(Propagate, an_output_takes_the_layout_of_the_input_it_updates) {
  Graph graph;
  const Mesh mesh({{"a", 2}});
  const Tensor w = input(graph, "w", {4, 4});
  const Tensor g = input(graph, "g", {4, 4}, Role::kData);
  graph.add_output("w", add(w, g).id(), w.id());
  const Strategy strategy = propagate(graph, mesh, layouts_of({"[a, -]", "[-, -]"}, mesh));
  EXPECT_EQ(to_string(strategy.outputs[0], mesh), "[a, -]");
}

TEST(Propagate, an_input_layout_that_does_not_fit_is_refused_by_name) {
  Graph graph;
  const Mesh mesh({{"a", 2}});
  input(graph, "odd", {3}, Role::kData);
  try {
    propagate(graph, mesh, layouts_of({"[a]"}, mesh));
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("odd"));
  }
}

}  // namespace
}  // namespace trireme::propagate_test
