#include "trireme/train/step/graphs/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// Nothing of that size is made: the step is a graph.
TEST(TrainingStep, a_norm_of_more_terms_than_can_be_added_exactly_is_refused_where_numerics_are_invariant) {
  const auto refusal = [](int64_t width, Numerics numerics) -> std::string {
    nn::Linear wide(width, width, {.name = "wide", .bias = false}), narrow(width, 1, {.name = "narrow", .bias = false});
    const std::vector<BatchField> batch{{"x", {DType::kF32, {2, width}}}, {"t", {DType::kF32, {2, 1}}}};
    try {
      training_step([&](const Tensor& x) { return narrow(wide(x)); }, squared(), batch, Sgd{},
                    {.name = "net", .clip_norm = 1, .numerics = numerics});
    } catch (const Error& e) {
      return e.text();
    }
    return "";
  };
  constexpr int64_t kWidth = 185363;  // with which both weights have just below 2^35 elements
  EXPECT_EQ(refusal(kWidth, Numerics::kInvariant), "");
  EXPECT_EQ(refusal(kWidth + 1, Numerics::kFast), "");
  EXPECT_THAT(
      refusal(kWidth + 1, Numerics::kInvariant),
      HasSubstr("the norm of all gradients (clip_norm = 1) of 'net' is a sum of more than 34359738368 squares"));
}

TEST(TrainingStep, gives_the_loss_and_what_the_next_step_starts_with) {
  EXPECT_THAT(names(linear_step({.clip_norm = 1}, AdamW{})),
              ElementsAre("loss", "grad_norm", "weight", "weight.m", "weight.v"));
}

// Two layers, y = b (a x), so that a gradient of `a` goes through `b`.
class TwoLayers : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override { return b(a(x)); }
  nn::Linear a{3, 2, {.name = "a", .bias = false}}, b{2, 1, {.name = "b", .bias = false}};
};

Graph two_layers_step(TwoLayers& net, const Optimizer& optimizer, const std::vector<ParameterRule>& groups) {
  return training_step([&](const Tensor& x) { return net(x); }, squared(), kBatch, optimizer, {.groups = groups});
}

std::map<std::string, HostTensor> inputs_of_two() {
  std::map<std::string, HostTensor> out = inputs_of(0.5F);
  out.erase("weight");
  out.emplace("a.weight", HostTensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  out.emplace("b.weight", HostTensor::of<float>({1, 2}, {1, 2}));
  return out;
}

// Of one gradient, decay and rate say by how much: p' = p - lr (g + decay p).
TEST(TrainingStep, groups_have_numbers_and_rates_of_their_own) {
  TwoLayers net;
  const auto step = [&](const std::vector<ParameterRule>& groups) {
    const Graph graph = two_layers_step(net, Sgd{.weight_decay = 0.5}, groups);
    EXPECT_THAT(verify(graph), IsEmpty());
    return interpret(graph, inputs_of_two());
  };
  const auto usual = step({});
  const auto bare = step({"a.* = weight_decay 0"});
  const auto slow = step({"b.* = lr_scale 0.25", "a.* = lr_scale 2, weight_decay 0"});
  const std::vector<float> before{1, 2, 3, 4, 5, 6};
  for (size_t i = 0; i < before.size(); ++i) {
    const float with_decay = usual.at("a.weight").as<float>()[i];
    const float without = bare.at("a.weight").as<float>()[i];
    EXPECT_NEAR(without - with_decay, 0.5F * 0.5F * before[i], 1e-4);
    EXPECT_NEAR(slow.at("a.weight").as<float>()[i] - before[i], 2 * (without - before[i]), 1e-4);
  }
  for (size_t i = 0; i < 2; ++i) {
    const float begin = i == 0 ? 1 : 2;
    EXPECT_FLOAT_EQ(bare.at("b.weight").as<float>()[i], usual.at("b.weight").as<float>()[i]);
    EXPECT_NEAR(slow.at("b.weight").as<float>()[i] - begin, 0.25F * (usual.at("b.weight").as<float>()[i] - begin),
                1e-4);
  }
}

int backward_nodes(const Graph& graph) {
  return static_cast<int>(
      std::ranges::count_if(graph.nodes(), [](const Node& node) { return node.phase == Phase::kBackward; }));
}

TEST(TrainingStep, what_is_frozen_has_no_gradient_and_no_state_and_ends_the_backward_pass) {
  TwoLayers net;
  const Graph all = two_layers_step(net, AdamW{}, {});
  const Graph upper = two_layers_step(net, AdamW{}, {"a.* = frozen"});
  const Graph lower = two_layers_step(net, AdamW{}, {"b.* = frozen"});
  EXPECT_THAT(names(upper), ElementsAre("loss", "b.weight", "b.weight.m", "b.weight.v"));
  EXPECT_THAT(names(lower), ElementsAre("loss", "a.weight", "a.weight.m", "a.weight.v"));
  EXPECT_EQ(backward_nodes(upper), backward_nodes(all) - 2) << "neither the gradient of `a` nor that of its result";
  EXPECT_EQ(backward_nodes(lower), backward_nodes(all) - 1);
  EXPECT_EQ(upper.input("a.weight").role, Role::kParameter);
  EXPECT_EQ(nn::describe_groups(upper, {}), "frozen: 1 parameter (6 values); the others: 1 parameter (2 values)");
  EXPECT_EQ(nn::describe_groups(all, {}), "");
}

TEST(TrainingStep, modules_freeze_themselves_and_rules_take_it_back) {
  TwoLayers net;
  net.freeze();
  net.b.freeze("weight");
  EXPECT_THAT(names(two_layers_step(net, Sgd{}, {"a.* = trained"})), ElementsAre("loss", "a.weight"));
  const auto error_of = [&](const std::vector<ParameterRule>& groups) -> std::string {
    try {
      two_layers_step(net, Sgd{}, groups);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({}), HasSubstr("all 2 parameters of 'model' are frozen"));
  EXPECT_THAT(error_of({"c.* = trained"}),
              HasSubstr("matches no parameter of the model; it has 'a.weight', 'b.weight'"));
  net.a.freeze("bias");
  EXPECT_THAT(error_of({"a.* = trained"}), HasSubstr("parameter group \"a.bias = frozen\" matches no parameter"));
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
