#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/op/message.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"
#include "trireme/ops/run_op_for_tests.h"

namespace trireme::collectives_test {
namespace {

using testing::HasSubstr;

std::vector<TensorType> infer(std::string_view name, std::vector<TensorType> in, const CollectiveAttrs& attrs) {
  const Attrs record = Attrs::of(attrs);
  return op(name).infer.get()({in, record});
}

std::string refusal(std::string_view name, std::vector<TensorType> in, const CollectiveAttrs& attrs) {
  return error_text([&] { infer(name, std::move(in), attrs); });
}

TEST(Collectives, GiveTheTypesOfPieces) {
  EXPECT_EQ(infer("all_reduce", {f32({6}), i32({2})}, {.size = 4}), (std::vector{f32({6}), i32({2})}));
  EXPECT_EQ(infer("all_gather", {f32({6, 4})}, {.dim = 1, .size = 3}), std::vector{f32({6, 12})});
  EXPECT_EQ(infer("reduce_scatter", {f32({6, 4})}, {.dim = 0, .size = 3}), std::vector{f32({2, 4})});
  EXPECT_EQ(infer("all_to_all", {f32({6, 4})}, {.dim = 0, .from_dim = 1, .size = 3}), std::vector{f32({2, 12})});
  EXPECT_EQ(infer("broadcast", {f32({6})}, {.size = 3, .root = 2}), std::vector{f32({6})});
  EXPECT_EQ(infer("shard_slice", {f32({6})}, {.size = 3}), std::vector{f32({2})});
}

TEST(Collectives, RefuseBools) {
  EXPECT_EQ(refusal("all_reduce", {f32({2}), {DType::kBool, {2}}}, {.size = 2}),
            "all_reduce: a bool tensor cannot be sent; cast it to u8 first (operand bool[2])");
}

TEST(Collectives, RefuseProducts) {
  EXPECT_EQ(refusal("all_reduce", {f32({2})}, {.size = 2, .reduction = "prod"}),
            "all_reduce: no reduction 'prod'; use 'sum', 'max' or 'min'");
  EXPECT_THAT(refusal("reduce_scatter", {f32({2})}, {.size = 2, .reduction = "prod"}), HasSubstr("'prod'"));
}

TEST(Collectives, RefuseADimensionThatTheGroupDoesNotDivide) {
  EXPECT_EQ(refusal("reduce_scatter", {f32({6, 4})}, {.dim = 0, .size = 4}),
            "reduce_scatter: 4 ranks do not divide dimension 0 of size 6 (operand f32[6,4])");
  EXPECT_THAT(refusal("all_to_all", {f32({6, 4})}, {.dim = 1, .size = 3}), HasSubstr("3 ranks do not divide"));
}

TEST(Collectives, RefuseADimensionThatIsNotThere) {
  EXPECT_EQ(refusal("all_gather", {f32({6})}, {.dim = 1, .size = 2}),
            "all_gather: no dimension 1 in an operand f32[6]");
}

TEST(Collectives, RefuseARootOutsideTheGroup) {
  EXPECT_EQ(refusal("broadcast", {f32({6})}, {.size = 2, .root = 2}),
            "broadcast: root is 2 in a group of 2 ranks; use 0 to 1");
}

// Each is told by the name that it is called by, which its file writes twice.
TEST(Collectives, NameThemselvesInWhatIsWrong) {
  for (const OpDef* op : all_ops()) {
    if (!op->collective && !op->traits.message) continue;
    int refused = 0;
    const auto expect_name = [&](const std::vector<TensorType>& in, const Attrs& attrs) {
      const std::string why = error_text([&] { op->infer.get()({in, attrs}); });
      refused += why.empty() ? 0 : 1;
      EXPECT_TRUE(why.empty() || why.starts_with(std::string(op->name) + ": ")) << op->name << " says: " << why;
    };
    for (const Example& example : op->examples()) {
      for (const TensorType& other : {TensorType{DType::kBool, {7, 7, 7, 7}}, f32({}), f32({7})})
        expect_name(std::vector<TensorType>(example.in.size(), other), example.attrs);
    }
    if (op->inputs.empty()) expect_name({}, Attrs::of(RecvAttrs{.from = 1, .dtype = DType::kBool, .shape = {6}}));
    EXPECT_GT(refused, 0) << op->name;
  }
}

// The op that the gradient of `name` ends with, and its attributes.
const Node& gradient_of(Graph& graph, std::string_view name, const TensorType& type, const CollectiveAttrs& attrs) {
  const Tensor x(graph, graph.add_input(fmt::format("x{}", graph.inputs().size()), type, Role::kData));
  const std::vector<Tensor> y = apply(op(name), {x}, Attrs::of(attrs));
  const Tensor dy = full(graph, y[0].type(), 1);
  const char wanted = 1;
  const Attrs record = Attrs::of(attrs);
  const std::vector<Tensor> dx =
      op(name).grad.get()({std::span(&x, 1), y, std::span(&dy, 1), std::span(&wanted, 1), record});
  EXPECT_EQ(dx[0].type(), type);
  return graph.node(graph.value(dx[0].id()).producer);
}

TEST(Collectives, HaveTheirAdjointsAsGradients) {
  Graph graph;

  EXPECT_EQ(gradient_of(graph, "all_reduce", f32({6}), {.size = 2}).op->name, "all_reduce");
  EXPECT_EQ(gradient_of(graph, "all_gather", f32({6}), {.size = 2}).op->name, "reduce_scatter");
}

TEST(Collectives, GatherScatteredSumsInTheGradient) {
  Graph graph;

  EXPECT_EQ(gradient_of(graph, "reduce_scatter", f32({6}), {.size = 2}).op->name, "all_gather");
}

TEST(Collectives, LeaveZerosBesideASliceInItsGradient) {
  Graph graph;

  EXPECT_EQ(gradient_of(graph, "shard_slice", f32({4}), {.size = 2}).op->name, "concat");
}

TEST(Collectives, ExchangeBackInTheGradientOfAnExchange) {
  Graph graph;
  const Node& node = gradient_of(graph, "all_to_all", f32({6, 4}), {.dim = 0, .from_dim = 1, .size = 3});

  EXPECT_EQ(node.op->name, "all_to_all");
  EXPECT_EQ(node.attrs.as<CollectiveAttrs>().dim, 1);
  EXPECT_EQ(node.attrs.as<CollectiveAttrs>().from_dim, 0);
}

TEST(Collectives, GiveTheGradientOfAMaximumToTheRanksThatHoldIt) {
  Graph graph;
  const Node& node = gradient_of(graph, "all_reduce", f32({6}), {.size = 2, .reduction = "max"});

  EXPECT_EQ(node.op->name, "mul");
}

TEST(Collectives, SumTheGradientOfABroadcastAtTheRoot) {
  Graph graph;
  gradient_of(graph, "broadcast", f32({6}), {.size = 3, .root = 2});

  std::string names;
  for (const Node& node : graph.nodes()) names += std::string(node.op->name) + " ";
  EXPECT_EQ(names, "broadcast full full neighbor_exchange all_reduce mul ");
}

}  // namespace
}  // namespace trireme::collectives_test
