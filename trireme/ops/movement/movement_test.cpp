#include "trireme/ops/movement/movement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/ops/ops.h"
#include "trireme/ops/run_op_for_tests.h"

namespace trireme::movement_test {
namespace {

using ::testing::ElementsAre;

const HostTensor& table() {
  static const HostTensor x = HostTensor::of<int32_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  return x;
}

std::string reshape_rule(std::initializer_list<int64_t> from, std::initializer_list<int64_t> to) {
  const std::vector<TensorType> in = {{DType::kF32, Shape(from)}};
  const std::vector<TensorType> out = {{DType::kF32, Shape(to)}};
  return to_string(op("reshape").shard.get()({in, out, Attrs()}));
}

TEST(Movement, MovesElementsWhereTheyBelong) {
  EXPECT_THAT(run_op("transpose", {table()}, "{perm=[1,0]}")[0].as<int32_t>(), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(run_op("slice", {table()}, "{starts=[0,1], sizes=[2,2]}")[0].as<int32_t>(), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(run_op("concat", {table(), table()}, "{dim=1}")[0].as<int32_t>(),
              ElementsAre(1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6));
  EXPECT_THAT(run_op("pad", {table()}, "{before=[1,0], after=[0,1], value=9}")[0].as<int32_t>(),
              ElementsAre(9, 9, 9, 9, 1, 2, 3, 9, 4, 5, 6, 9));
  EXPECT_THAT(run_op("broadcast_to", {HostTensor::of<int32_t>({2, 1}, {1, 2})}, "{shape=[2,2,3]}")[0].as<int32_t>(),
              ElementsAre(1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2));
  EXPECT_THAT(run_op("reshape", {table()}, "{shape=[3,2]}")[0].as<int32_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Movement, TransposesThreeDimensions) {
  const HostTensor x = HostTensor::of<int32_t>({2, 2, 2}, {0, 1, 10, 11, 100, 101, 110, 111});

  EXPECT_THAT(run_op("transpose", {x}, "{perm=[2,0,1]}")[0].as<int32_t>(),
              ElementsAre(0, 10, 100, 110, 1, 11, 101, 111));
}

TEST(Movement, MakesCoordinatesAndOneHotRows) {
  EXPECT_THAT(run_op("iota", {}, "{dtype=i32, shape=[2,3], dim=1}")[0].as<int32_t>(), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(run_op("iota", {}, "{dtype=i32, shape=[2,3], dim=0}")[0].as<int32_t>(), ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(run_op("one_hot", {HostTensor::of<int32_t>({2}, {2, 7})}, "{depth=3}")[0].as<float>(),
              ElementsAre(0, 0, 1, 0, 0, 0));
}

TEST(Reshape, SharesTheFactorsOfBothShapes) {
  EXPECT_EQ(reshape_rule({2, 3, 24}, {2, 3, 6, 4}), "ab(cd)->abcd a=2 b=3 c=6 d=4");
  EXPECT_EQ(reshape_rule({2, 3, 6, 4}, {2, 3, 24}), "abcd->ab(cd) a=2 b=3 c=6 d=4");
  EXPECT_EQ(reshape_rule({4, 6}, {24}), "ab->(ab) a=4 b=6");
  EXPECT_EQ(reshape_rule({1, 6, 1}, {6}), ".a.->a a=6");
  EXPECT_EQ(reshape_rule({1}, {}), ".->");
}

TEST(Reshape, SharesWhatDividesBothWhereShapesHaveNoCommonSplit) {
  EXPECT_EQ(reshape_rule({6, 4}, {4, 6}), "(ab!)e!->(ac!)d! a=2 b=3 c=2 d=6 e=4");
}

TEST(Reshape, FindsTheSizeThatIsLeftOpen) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", f32({4, 6}), Role::kData));

  EXPECT_EQ(reshape(x, {2, -1, 3}).shape(), (Shape{2, 4, 3}));
  EXPECT_EQ(unsqueeze(x, 1).shape(), (Shape{4, 1, 6}));
  EXPECT_EQ(unsqueeze(x, -1).shape(), (Shape{4, 6, 1}));
  EXPECT_EQ(squeeze(unsqueeze(x, 0), 0).shape(), (Shape{4, 6}));
  EXPECT_EQ(reshape(x, {4, 6}).id(), x.id());
}

TEST(Split, CutsADimensionInPartsThatConcatJoins) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", f32({4, 6}), Role::kData));

  const std::vector<Tensor> thirds = split(x, -1, 3);
  const std::vector<Tensor> uneven = split(x, 0, std::vector<int64_t>{1, 3});

  ASSERT_EQ(thirds.size(), 3U);
  EXPECT_EQ(thirds[2].shape(), (Shape{4, 2}));
  EXPECT_EQ(uneven[1].shape(), (Shape{3, 6}));
  EXPECT_EQ(concat(uneven, 0).shape(), (Shape{4, 6}));
}

TEST(Movement, ErrorsNameOpAndDimension) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", f32({4, 6}), Role::kData));
  const Tensor v(graph, graph.add_input("v", f32({6}), Role::kData));

  EXPECT_EQ(error_text([&] {
              transpose(x, {0, 0});
            }),
            "transpose: {perm=[0,0]} does not name each of the 2 dimensions of x f32[4,6] once");
  EXPECT_EQ(error_text([&] {
              transpose(x, {0, 2});
            }),
            "transpose: no dimension 2 in x f32[4,6]; dimensions are -2 to 1");
  EXPECT_EQ(error_text([&] { slice(x, {0}, {1}); }),
            "slice: 1 starts and 1 sizes for x f32[4,6]; give one of each per dimension");
  EXPECT_EQ(error_text([&] { slice(x, 1, 4, 3); }),
            "slice: 3 elements from 4 on of dimension 1 of x f32[4,6], which has 6");
  EXPECT_EQ(error_text([&] { split(x, 1, 4); }), "split: 4 parts do not divide dimension 1 of x f32[4,6]");
  EXPECT_EQ(error_text([&] {
              split(x, 1, std::vector<int64_t>{1, 2});
            }),
            "split: the sizes add up to 3, dimension 1 of x f32[4,6] has 6");
  EXPECT_EQ(error_text([&] { concat({}, 0); }), "concat: no operands; give one or more");
  EXPECT_EQ(error_text([&] {
              concat({x, v}, 0);
            }),
            "concat: operand 1 is f32[6], operand 0 is f32[4,6]; they may differ in the size of "
            "dimension 0 only");
  EXPECT_EQ(error_text([&] { run_op("concat", {table()}, "{dim=2}"); }),
            "concat: no dimension 2 in operand 0 (i32[2,3]); dimensions are 0 to 1");
  EXPECT_EQ(error_text([&] { pad(x, {1}, {1}); }),
            "pad: 1 and 1 widths for x f32[4,6]; give one before and one after per dimension");
  EXPECT_EQ(error_text([&] {
              pad(x, {1, -1}, {0, 0});
            }),
            "pad: widths -1 and 0 of dimension 1; they must be 0 or more, up to 2^58");
  EXPECT_EQ(error_text([&] { broadcast_to(x, {6}); }),
            "broadcast_to: x f32[4,6] does not broadcast to [6]; sizes must be equal or 1 in x, "
            "counted from the last");
  EXPECT_EQ(error_text([&] {
              reshape(x, {5, 5});
            }),
            "reshape: x f32[4,6] has 24 elements, shape [5,5] has 25; they must be equal");
  EXPECT_EQ(error_text([&] {
              reshape(x, {-1, -1});
            }),
            "reshape: sizes 0 and 1 are both -1; only one can follow from the others");
  EXPECT_EQ(error_text([&] {
              reshape(x, {5, -1});
            }),
            "reshape: the 24 elements of x f32[4,6] do not divide by 5, the product of the sizes given");
  EXPECT_EQ(error_text([&] { squeeze(x, 0); }), "squeeze: dimension 0 of x f32[4,6] does not have size 1");
  EXPECT_EQ(error_text([&] { unsqueeze(x, 4); }), "unsqueeze: no place 4 in x f32[4,6]; places are -3 to 2");
  EXPECT_EQ(error_text([&] {
              iota(graph, {DType::kI32, {4}}, 1);
            }),
            "iota: no dimension 1 in shape [4]; dimensions are 0 to 0");
  EXPECT_EQ(error_text([&] {
              iota(graph, {DType::kBool, {4}}, 0);
            }),
            "iota: the element type must be a number, not bool");
  EXPECT_EQ(error_text([&] { one_hot(v, 4); }), "one_hot: ids must be i32 or i64 (ids f32[6]); cast them");
  EXPECT_EQ(error_text([&] { one_hot(argmax(x), 0); }), "one_hot: depth is 0; it must be 1 or more");
}

}  // namespace
}  // namespace trireme::movement_test
