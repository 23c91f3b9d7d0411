#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/op/interpret.h"
#include "trireme/ops/loss/counted_loss.h"
#include "trireme/ops/run_op_for_tests.h"

namespace trireme::losses_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

constexpr double kTol = 1e-6;

HostTensor rows(int64_t n, const std::vector<float>& values) {
  return HostTensor::of<float>({n, static_cast<int64_t>(values.size()) / n}, values);
}
HostTensor labels(const std::vector<int32_t>& values) {
  return HostTensor::of<int32_t>({static_cast<int64_t>(values.size())}, values);
}

// ln(e + e^2 + e^3)
const double kLogSum = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0));

TEST(CrossEntropy, IsTheLogarithmOfTheProbabilityOfTheLabel) {
  const auto out = run_op("cross_entropy", {rows(2, {1, 2, 3, 3, 1, 2}), labels({2, 2})});

  EXPECT_THAT(values(out[0]), ElementsAre(DoubleNear(kLogSum - 3, kTol), DoubleNear(kLogSum - 2, kTol)));
}

TEST(CrossEntropy, SmoothingMovesTheTargetTowardsUniform) {
  const auto out = run_op("cross_entropy", {rows(1, {1, 2, 3}), labels({0})}, "{label_smoothing=0.3}");

  const double a = 0.7 + 0.1;
  EXPECT_THAT(values(out[0]),
              ElementsAre(DoubleNear(a * (kLogSum - 1) + 0.1 * (kLogSum - 2) + 0.1 * (kLogSum - 3), kTol)));
}

TEST(CrossEntropy, IgnoredPositionsHaveNoLossAndNoGradient) {
  const HostTensor logits = rows(2, {1, 2, 3, 1, 2, 3});
  const auto loss = run_op("cross_entropy", {logits, labels({-100, 1})});
  const auto grad = run_op("cross_entropy_grad", {logits, labels({-100, 1}), vec({5, 2})});

  EXPECT_THAT(values(loss[0]), ElementsAre(0, DoubleNear(kLogSum - 2, kTol)));
  EXPECT_THAT(values(grad[0]), ElementsAre(0, 0, 0, DoubleNear(2 * std::exp(1 - kLogSum), kTol),
                                           DoubleNear(2 * (std::exp(2 - kLogSum) - 1), kTol),
                                           DoubleNear(2 * std::exp(3 - kLogSum), kTol)));
}

TEST(CrossEntropy, SurvivesLogitsWhoseExponentialOverflows) {
  const auto out = run_op("cross_entropy", {rows(1, {1000, 0, -1000}), labels({1})});

  EXPECT_THAT(values(out[0]), ElementsAre(DoubleNear(1000, kTol)));
}

TEST(CrossEntropy, NamesALabelThatIsNoClass) {
  const std::string text = error_text([] { run_op("cross_entropy", {rows(2, {1, 2, 3, 1, 2, 3}), labels({0, 3})}); });

  EXPECT_EQ(text, "cross_entropy: label 3 at position 1 of 3 classes; use 0 to 2 or -100");
}

TEST(CrossEntropy, RefusesLabelsOfAnotherShape) {
  const std::string text = error_text([] { run_op("cross_entropy", {rows(2, {1, 2, 3, 4}), labels({0})}); });

  EXPECT_EQ(text,
            "cross_entropy: labels must have the shape of the logits without its last dimension "
            "(logits f32[2,2], labels i32[1])");
}

TEST(Softmax, GivesProbabilitiesAndTheirLogarithms) {
  const HostTensor x = rows(1, {1, 2, 3});
  const auto p = values(run_op("softmax", {x})[0]);
  const auto log_p = values(run_op("log_softmax", {x})[0]);

  const std::vector<double> want{1 - kLogSum, 2 - kLogSum, 3 - kLogSum};
  EXPECT_THAT(log_p, Pointwise(DoubleNear(kTol), want));
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(p[i], std::exp(want[i]), kTol);
}

TEST(CrossEntropyMean, DividesByAllPositionsOrSaysWhichCount) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {2, 3}}, Role::kData));
  const Tensor y(graph, graph.add_input("y", {DType::kI32, {2}}, Role::kData));
  graph.add_output("mean", cross_entropy_mean(x, y).id());
  const CountedLoss loss = cross_entropy_counted(x, y);
  graph.add_output("values", loss.values.id());
  graph.add_output("counted", cast(loss.counted, DType::kF32).id());
  std::map<std::string, HostTensor> inputs;
  inputs.emplace("x", rows(2, {1, 2, 3, 1, 2, 3}));
  inputs.emplace("y", labels({-100, 1}));
  const auto out = interpret(graph, inputs);
  EXPECT_NEAR(values(out.at("mean"))[0], (kLogSum - 2) / 2, kTol);
  EXPECT_THAT(values(out.at("values")), Pointwise(DoubleNear(kTol), std::vector<double>{0, kLogSum - 2}));
  EXPECT_EQ(values(out.at("counted")), (std::vector<double>{0, 1}));
}

TEST(Mse, IsTheMeanOfSquaredDifferences) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {3}}, Role::kData));
  const Tensor y(graph, graph.add_input("y", {DType::kF32, {3}}, Role::kData));
  graph.add_output("loss", mse(x, y).id());
  std::map<std::string, HostTensor> inputs;
  inputs.emplace("x", vec({1, 2, 3}));
  inputs.emplace("y", vec({1, 4, 0}));

  EXPECT_NEAR(values(interpret(graph, inputs).at("loss"))[0], (4 + 9) / 3.0, kTol);
}

}  // namespace
}  // namespace trireme::losses_test
