#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/rng.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/run_op_for_tests.h"

namespace trireme::batch_norm_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

constexpr double kTol = 1e-6;

TEST(BatchNorm, SumsAreThoseOfEachChannelAndOfItsSquares) {
  const auto out = run_op("channel_sums", {HostTensor::of<float>({3, 2}, {1, 2, 3, 5, -1, 4})});

  EXPECT_THAT(values(out[0]), ElementsAre(3, 11, 11, 45));
}

TEST(BatchNorm, StatisticsAreOfTheBatchAndGoIntoTheRunningOnesUnbiased) {
  const HostTensor sums = HostTensor::of<double>({2, 1}, {12, 44});  // of four positions
  const auto out = run_op("batch_statistics", {sums, vec({1}), vec({2})}, "{count=4, momentum=0.25}");

  EXPECT_THAT(values(out[0]), ElementsAre(3));    // 12 / 4
  EXPECT_THAT(values(out[1]), ElementsAre(2));    // 44 / 4 - 9
  EXPECT_THAT(values(out[2]), ElementsAre(1.5));  // 1 + (3 - 1) / 4
  EXPECT_THAT(values(out[3]), ElementsAre(DoubleNear(2 + (8.0 / 3 - 2) / 4, kTol)));
}

TEST(BatchNorm, NormalisesAddsAndCutsOff) {
  const HostTensor x = HostTensor::of<float>({2, 2}, {1, 2, 3, 8});
  const HostTensor residual = HostTensor::of<float>({2, 2}, {0, 0, 1, -9});
  const auto out = run_op("batch_norm", {x, vec({2, 1}), vec({0, 1}), vec({2, 4}), vec({0.75, 3.75}), residual},
                          "{eps=0.25, relu=true}");

  EXPECT_THAT(values(out[0]), ElementsAre(0, 0, DoubleNear(3, kTol), 0));  // -2, 0; 2 + 1, 3 - 9
}

TEST(BatchNorm, RefusesNumbersThatAreNotOfTheChannels) {
  const std::string text = error_text([] {
    run_op("batch_norm", {HostTensor::of<float>({1, 2}, {1, 2}), vec({1, 1}), vec({0}), vec({0, 0}), vec({1, 1})});
  });

  EXPECT_EQ(
      text,
      "batch_norm: gamma, beta, mean and var must be f32[2], for the last dimension of x (x f32[1,2], gamma f32[2], "
      "beta f32[1], mean f32[2], var f32[2])");
}

// The variance of numbers far from zero: in f32 the difference of a million's squares would be nothing.
TEST(BatchNorm, KeepsTheVarianceOfNumbersThatAreAThousandTimesTheirDeviation) {
  std::vector<float> numbers(4096);
  fill_normal({1, 2}, 0, 0, numbers);
  double sum = 0, squares = 0;
  for (float& x : numbers) {
    x += 1000;
    sum += x;
  }
  for (const float x : numbers) squares += std::pow(x - sum / 4096, 2);
  const auto sums = run_op("channel_sums", {HostTensor::of<float>({4096, 1}, numbers)});
  const auto out = run_op("batch_statistics", {sums[0], vec({0}), vec({1})}, "{count=4096}");

  EXPECT_NEAR(values(out[1])[0], squares / 4096, 1e-6);
}

// -- the gradient through the statistics ------------------------------------------------------------------

struct Traced {
  Graph graph;
  std::vector<std::string> names{"x", "gamma", "beta", "residual"};
};

Traced training_graph(bool relu, bool residual) {
  Traced out;
  Graph& graph = out.graph;
  const auto input = [&](const std::string& name, Shape shape) {
    return Tensor(graph, graph.add_input(name, {DType::kF32, shape}, Role::kParameter));
  };
  const Shape shape{2, 3, 2, 3};
  std::vector<Tensor> wrt{input("x", shape), input("gamma", {3}), input("beta", {3})};
  BatchNormOptions options{.relu = relu};
  if (residual) options.residual = wrt.emplace_back(input("residual", shape));
  if (!residual) out.names.pop_back();
  const Tensor weights = input("weights", shape);
  const BatchNormTraining y =
      batch_norm_training(wrt[0], wrt[1], wrt[2], input("mean", {3}), input("var", {3}), 0.1, options);
  const Tensor loss = reduce_sum(mul(y.y, weights));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, wrt);
  for (size_t i = 0; i < grads.size(); ++i) graph.add_output("d" + out.names[i], grads[i].id());
  return out;
}

void check_gradient(bool relu, bool residual) {
  const Traced traced = training_graph(relu, residual);
  std::map<std::string, HostTensor> values;
  uint64_t stream = 0;
  for (const Input& in : traced.graph.inputs()) {
    HostTensor tensor(traced.graph.type(in.value));
    fill_normal({7, ++stream}, 0, 0, tensor.as<float>());
    values.emplace(in.name, std::move(tensor));
  }
  const auto loss = [&] { return interpret(traced.graph, values, {.f64 = true}).at("loss").as<double>()[0]; };
  const auto exact = interpret(traced.graph, values, {.f64 = true});
  constexpr float kStep = 0x1p-10F;
  for (const std::string& name : traced.names) {
    const auto operand = values.at(name).as<float>();
    for (size_t i = 0; i < operand.size(); ++i) {
      const float middle = operand[i];
      operand[i] = middle + kStep;
      const float above = operand[i];
      const double up = loss();
      operand[i] = middle - kStep;
      const double slope = (up - loss()) / (static_cast<double>(above) - operand[i]);
      operand[i] = middle;
      EXPECT_NEAR(exact.at("d" + name).as<double>()[i], slope, 2e-5) << name << " " << i;  // of the step's square
    }
  }
}

TEST(BatchNorm, TheGradientOfXIsThatThroughItsStatistics) {
  check_gradient(false, false);
}
TEST(BatchNorm, TheGradientStopsWhereReluCutsOff) {
  check_gradient(true, false);
}
TEST(BatchNorm, TheResidualGetsItsGradientToo) {
  check_gradient(false, true);
}
TEST(BatchNorm, TheResidualsGradientStopsWhereReluCutsOff) {
  check_gradient(true, true);
}

}  // namespace
}  // namespace trireme::batch_norm_test
