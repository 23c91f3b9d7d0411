#include "trireme/nn/biased_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/op/interpret.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::nn::biased_attention_test {
namespace {

using testing::ElementsAre;

TEST(BiasedAttention, refuses_shapes_that_do_not_fit) {
  Graph graph;
  const auto of = [&](const Shape& shape) {
    return Tensor{graph, graph.add_input("", {DType::kF32, shape}, Role::kData)};
  };
  EXPECT_EQ(biased_attention(of({2, 3, 4, 5}), of({2, 7, 4, 5}), of({2, 7, 4, 5}), of({3, 7}), 1).shape(),
            (Shape{2, 3, 4, 5}));
  EXPECT_THROW(biased_attention(of({2, 3, 4, 5}), of({2, 7, 2, 5}), of({2, 7, 2, 5}), of({3, 7}), 1), Error);
  EXPECT_THROW(biased_attention(of({2, 3, 4, 5}), of({2, 7, 4, 5}), of({2, 6, 4, 5}), of({3, 7}), 1), Error);
}

// What position 0 of `positions` keys, or as a query, has as classes: of each distance before it, and of each after it.
std::pair<std::vector<int32_t>, std::vector<int32_t>> classes_of(int64_t positions, const DistanceClasses& options) {
  Graph graph;
  graph.add_output("y", distance_classes(graph, positions, positions, options).id());
  const auto results = interpret(graph, {});
  const HostTensor& y = results.at("y");
  std::vector<int32_t> before, after;
  for (int64_t i = 0; i < positions; ++i) {
    before.push_back(y.as<int32_t>()[static_cast<size_t>(i * positions)]);  // the query is i positions after the key
    after.push_back(y.as<int32_t>()[static_cast<size_t>(i)]);
  }
  return {before, after};
}

// The first distance of each class.
std::vector<int64_t> borders_of(const std::vector<int32_t>& classes) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < classes.size(); ++i) {
    if (i == 0 || classes[i] != classes[i - 1]) out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

// The lists are what Hugging Face's T5Attention._relative_position_bucket gives.
TEST(DistanceClasses, are_those_of_the_released_models) {
  const auto [before, after] = classes_of(201, {});
  EXPECT_THAT(borders_of(before), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91));
  EXPECT_THAT((std::vector{before[1], before[200], after[0], after[1], after[2], after[9], after[200]}),
              ElementsAre(1, 15, 0, 17, 18, 24, 31));
  const auto [causal, unseen] = classes_of(201, {.both_ways = false});
  EXPECT_THAT(borders_of(causal), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 21, 24, 27,
                                              31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113));
  EXPECT_THAT(unseen, testing::Each(0));
  EXPECT_THAT(borders_of(classes_of(60, {.classes = 8, .most = 20}).first), ElementsAre(0, 1, 2, 7));
  EXPECT_THAT(borders_of(classes_of(60, {.classes = 6, .most = 50, .both_ways = false}).first),
              ElementsAre(0, 1, 2, 3, 8, 20));
}

TEST(DistanceClasses, refuse_what_cannot_be_divided) {
  Graph graph;
  EXPECT_THROW(distance_classes(graph, 4, 4, {.classes = 7}), Error);
  EXPECT_THROW(distance_classes(graph, 4, 4, {.classes = 2}), Error);
  EXPECT_THROW(distance_classes(graph, 4, 4, {.classes = 32, .most = 8}), Error);
}

// Over heads of size 1 with keys of 0 the probabilities are those of the bias alone.
TEST(BiasedAttention, the_bias_decides_what_is_seen) {
  Graph graph;
  const auto of = [&](const char* name, const Shape& shape) {
    return Tensor{graph, graph.add_input(name, {DType::kF32, shape}, Role::kData)};
  };
  const Tensor q = of("q", {1, 3, 1, 1}), k = of("k", {1, 3, 1, 1}), v = of("v", {1, 3, 1, 1});
  graph.add_output("causal", biased_attention(q, k, v, causal_bias(graph, 3, 3), 1).id());
  graph.add_output("bias", biased_attention(q, k, v, of("bias", {1, 1, 1, 3}), 1).id());
  std::map<std::string, HostTensor> inputs;
  const Shape by_position{1, 3, 1, 1};
  inputs["q"] = HostTensor::of<float>(by_position, std::vector<float>{5, 6, 7});
  inputs["k"] = HostTensor::of<float>(by_position, std::vector<float>{0, 0, 0});
  inputs["v"] = HostTensor::of<float>(by_position, std::vector<float>{1, 3, 8});
  inputs["bias"] = HostTensor::of<float>({1, 1, 1, 3}, std::vector<float>{0, -1e9F, 0});
  const auto out = interpret(graph, inputs);
  EXPECT_THAT(out.at("causal").as<float>(), ElementsAre(1, 2, 4));
  EXPECT_THAT(out.at("bias").as<float>(), ElementsAre(4.5, 4.5, 4.5));
}

}  // namespace
}  // namespace trireme::nn::biased_attention_test
