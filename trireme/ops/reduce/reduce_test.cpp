#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"
#include "trireme/ops/run_op_for_tests.h"

namespace trireme::reduce_test {
namespace {

using ::testing::ElementsAre;

const HostTensor& table() {
  static const HostTensor x = HostTensor::of<float>({2, 3}, {1, -2, 3, 10, 20, -30});
  return x;
}

TEST(Reduce, GoesOverTheGivenDimensions) {
  EXPECT_THAT(run_op("reduce_sum", {table()}, "{dims=[0]}")[0].as<float>(), ElementsAre(11, 18, -27));
  EXPECT_THAT(run_op("reduce_sum", {table()}, "{dims=[1]}")[0].as<float>(), ElementsAre(2, 0));
  EXPECT_THAT(run_op("reduce_sum", {table()}, "{dims=[0,1]}")[0].as<float>(), ElementsAre(2));
  EXPECT_THAT(run_op("reduce_sum", {table()}, "{dims=[]}")[0].as<float>(), ElementsAre(1, -2, 3, 10, 20, -30));
  EXPECT_THAT(run_op("reduce_max", {table()}, "{dims=[1]}")[0].as<float>(), ElementsAre(3, 20));
  EXPECT_THAT(run_op("reduce_min", {table()}, "{dims=[0]}")[0].as<float>(), ElementsAre(1, -2, -30));
  EXPECT_THAT(run_op("square_sum", {table()})[0].as<float>(), ElementsAre(1 + 4 + 9 + 100 + 400 + 900));
  EXPECT_EQ(run_op("reduce_sum", {table()}, "{dims=[1], keep_dims=true}")[0].shape(), (Shape{2, 1}));
}

TEST(Reduce, SumsInDouble) {
  const HostTensor x = HostTensor::of<float>({3}, {0x1p30F, 1, -0x1p30F});

  EXPECT_EQ(run_op("reduce_sum", {x}, "{dims=[0]}")[0].as<float>()[0], 1);
}

TEST(Reduce, OfNothingIsZeroForSumsOnly) {
  const HostTensor none({DType::kF32, {0, 2}});

  EXPECT_THAT(run_op("reduce_sum", {none}, "{dims=[0]}")[0].as<float>(), ElementsAre(0, 0));
  EXPECT_EQ(error_text([&] { run_op("reduce_max", {none}, "{dims=[0]}"); }),
            "reduce_max: dimension 0 of x f32[0,2] is empty and has no reduce_max");
}

TEST(Reduce, CountsNegativeDimensionsFromTheEndAndTakesNoneForAll) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", f32({2, 3}), Role::kData));
  graph.add_output("last", reduce_sum(x, {-1}).id());
  graph.add_output("all", reduce_sum(x).id());
  graph.add_output("mean", mean(x, {0}, true).id());
  graph.add_output("mean of all", mean(x).id());
  std::map<std::string, HostTensor> in;
  in.emplace("x", table().clone());

  const auto out = interpret(graph, in);

  EXPECT_THAT(out.at("last").as<float>(), ElementsAre(2, 0));
  EXPECT_THAT(out.at("all").as<float>(), ElementsAre(2));
  EXPECT_THAT(out.at("mean").as<float>(), ElementsAre(5.5F, 9, -13.5F));
  EXPECT_EQ(out.at("mean").shape(), (Shape{1, 3}));
  EXPECT_FLOAT_EQ(out.at("mean of all").as<float>()[0], 1.0F / 3);
}

TEST(Reduce, SumToUndoesABroadcast) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", f32({2, 3}), Role::kData));
  graph.add_output("row", sum_to(x, {3}).id());
  graph.add_output("column", sum_to(x, {2, 1}).id());
  graph.add_output("scalar", sum_to(x, {}).id());
  std::map<std::string, HostTensor> in;
  in.emplace("x", table().clone());

  const auto out = interpret(graph, in);

  EXPECT_THAT(out.at("row").as<float>(), ElementsAre(11, 18, -27));
  EXPECT_THAT(out.at("column").as<float>(), ElementsAre(2, 0));
  EXPECT_EQ(out.at("column").shape(), (Shape{2, 1}));
  EXPECT_THAT(out.at("scalar").as<float>(), ElementsAre(2));
}

TEST(Reduce, ArgmaxTakesTheFirstOfEqualElements) {
  const HostTensor x = HostTensor::of<float>({2, 3}, {1, 5, 5, -1, -2, -1});

  EXPECT_THAT(run_op("argmax", {x}, "{dim=1}")[0].as<int32_t>(), ElementsAre(1, 0));
  EXPECT_THAT(run_op("argmax", {x}, "{dim=0}")[0].as<int32_t>(), ElementsAre(0, 0, 0));
}

TEST(Reduce, CumsumRunsForwardsAndBackwards) {
  EXPECT_THAT(run_op("cumsum", {table()}, "{dim=1}")[0].as<float>(), ElementsAre(1, -1, 2, 10, 30, 0));
  EXPECT_THAT(run_op("cumsum", {table()}, "{dim=0}")[0].as<float>(), ElementsAre(1, -2, 3, 11, 18, -27));
  EXPECT_THAT(run_op("cumsum", {table()}, "{dim=1, reverse=true}")[0].as<float>(), ElementsAre(2, 1, 3, 0, -10, -30));
}

TEST(Reduce, ErrorsNameOpAndDimension) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", f32({2, 3}), Role::kData));
  const Tensor n(graph, graph.add_input("n", i64({2}), Role::kData));
  const Tensor b(graph, graph.add_input("b", {DType::kBool, {2}}, Role::kData));
  const Tensor none(graph, graph.add_input("none", f32({0}), Role::kData));

  EXPECT_EQ(error_text([&] { reduce_sum(x, {2}); }),
            "reduce_sum: no dimension 2 in x f32[2,3]; dimensions are -2 to 1");
  EXPECT_EQ(error_text([&] { reduce_sum(x, {1, -1}); }), "reduce_sum: dimension 1 is given twice");
  EXPECT_EQ(error_text([&] { run_op("reduce_sum", {table()}, "{dims=[5]}"); }),
            "reduce_sum: no dimension 5 in x f32[2,3]; dimensions are 0 to 1");
  EXPECT_EQ(error_text([&] { reduce_max(b); }), "reduce_max: the operand must be a number (x bool[2])");
  EXPECT_EQ(error_text([&] { mean(n); }), "mean: the operand must be of a floating type (x i64[2]); cast it first");
  EXPECT_EQ(error_text([&] { mean(none); }), "mean: no elements to average in x f32[0]");
  EXPECT_EQ(error_text([&] { square_sum(n); }), "square_sum: the operand must be of a floating type (x i64[2])");
  EXPECT_EQ(error_text([&] {
              sum_to(x, {2, 2});
            }),
            "sum_to: size 3 of dimension 1 of x f32[2,3] cannot be summed to [2,2]");
  EXPECT_EQ(error_text([&] { sum_to(n, {2, 2}); }), "sum_to: x i64[2] has fewer dimensions than [2,2]");
  EXPECT_EQ(error_text([&] { argmax(x, 3); }), "argmax: no dimension 3 in x f32[2,3]; dimensions are -2 to 1");
  EXPECT_EQ(error_text([&] { argmax(none); }), "argmax: dimension 0 of x f32[0] is empty and has no largest element");
  EXPECT_EQ(error_text([&] { cumsum(b, 0); }), "cumsum: the operand must be a number (x bool[2])");
  EXPECT_EQ(error_text([&] { run_op("cumsum", {table()}, "{dim=4}"); }),
            "cumsum: no dimension 4 in x f32[2,3]; dimensions are 0 to 1");
}

}  // namespace
}  // namespace trireme::reduce_test
