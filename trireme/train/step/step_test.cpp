#include "trireme/train/step/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/nn/layers.h"
#include "trireme/op/build.h"
#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"

namespace trireme::step_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<BatchField> kBatch{{"x", {DType::kF32, {2, 3}}}, {"t", {DType::kF32, {2, 1}}}};

LossFn squared() {
  return [](const Tensor& y, const Tensor& t) { return square(sub(y, t)); };
}

Graph linear_step(const StepOptions& options, const Optimizer& optimizer = Sgd{}) {
  nn::Linear linear(3, 1, {.bias = false});
  return training_step([&](const Tensor& x) { return linear(x); }, squared(), kBatch, optimizer, options);
}

std::map<std::string, HostTensor> inputs_of(float lr) {
  std::map<std::string, HostTensor> out;
  out.emplace("x", HostTensor::of<float>({2, 3}, {1, 0, 2, 0, 3, 0}));
  out.emplace("t", HostTensor::of<float>({2, 1}, {1, 2}));
  out.emplace("weight", HostTensor(TensorType{DType::kF32, {1, 3}}));
  out.emplace("lr", HostTensor::of<float>({}, {lr}));
  out.emplace("step", HostTensor::of<int64_t>({}, {1}));
  return out;
}

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> out;
  for (const Output& output : graph.outputs()) out.push_back(output.name);
  return out;
}

TEST(TrainingStep, moves_parameters_against_the_gradient_of_the_mean_loss) {
  const Graph graph = linear_step({});
  EXPECT_THAT(verify(graph), IsEmpty());
  const auto out = interpret(graph, inputs_of(0.5F));
  EXPECT_FLOAT_EQ(out.at("loss").as<float>()[0], (1 + 4) / 2.0F);
  // dw = mean of 2 (y - t) x = [(2)(0-1)(1,0,2) + (2)(0-2)(0,3,0)] / 2 = (-1, -6, -2)
  EXPECT_THAT(out.at("weight").as<float>(), ElementsAre(0.5F, 3.0F, 1.0F));
}

TEST(TrainingStep, clipping_scales_gradients_to_the_norm_asked_for_and_tells_the_norm) {
  const float norm = std::sqrt(1.0F + 36 + 4);
  const auto clipped = interpret(linear_step({.clip_norm = 2}), inputs_of(1));
  EXPECT_NEAR(clipped.at("grad_norm").as<float>()[0], norm, 1e-5);
  EXPECT_NEAR(clipped.at("weight").as<float>()[1], 6 * 2 / norm, 1e-5);
  const auto loose = interpret(linear_step({.clip_norm = 100}), inputs_of(1));
  EXPECT_NEAR(loose.at("weight").as<float>()[1], 6, 1e-5) << "smaller gradients stay";
}

TEST(TrainingStep, gives_the_loss_and_what_the_next_step_starts_with) {
  EXPECT_THAT(names(linear_step({.clip_norm = 1}, AdamW{})),
              ElementsAre("loss", "grad_norm", "weight", "weight.m", "weight.v"));
}

TEST(TrainingStep, models_that_cannot_be_trained_are_refused) {
  const auto error_of = [](const ModelFn& model, const std::vector<BatchField>& batch) -> std::string {
    try {
      training_step(model, squared(), batch, Sgd{}, {.name = "net"});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const BatchField target{.name = "y", .type = kBatch[0].type};
  const ModelFn nothing = [](const Tensor& x) { return x; };
  EXPECT_THAT(error_of(nothing, {kBatch[0], target}), HasSubstr("the model 'net' has no parameters to train"));
  EXPECT_THAT(error_of(nothing, {kBatch[0]}), HasSubstr("1 batch fields; it takes the input and the target"));
  const ModelFn aside = [](const Tensor& x) {
    nn::Trace::current().parameter("unused", {DType::kF32, {1}}, {});
    return x;
  };
  EXPECT_THAT(error_of(aside, {kBatch[0], target}), HasSubstr("the loss of 'net' does not depend on any parameter"));
}

TEST(Evaluation, has_no_gradients_updates_or_dropout) {
  nn::Linear linear(3, 1);
  nn::Dropout drop(0.5);
  const Graph graph = evaluation([&](const Tensor& x) { return drop(linear(x)); }, squared(), kBatch, {.name = "net"});
  EXPECT_THAT(names(graph), ElementsAre("loss"));
  for (const Node& node : graph.nodes()) EXPECT_NE(node.op->name, "dropout");
  for (const Input& input : graph.inputs()) EXPECT_NE(input.role, Role::kState);
}

}  // namespace
}  // namespace trireme::step_test
