#include "trireme/nn/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"

namespace trireme::optimizer_test {
namespace {

using testing::ElementsAre;

struct Built {
  Graph graph;
  std::vector<std::string> states;
  std::vector<std::string> outputs;  // "w.m updates w.m"
};

Built build(const Optimizer& optimizer) {
  Built out;
  Graph& g = out.graph;
  const auto add = [&](const char* name, TensorType type, Role role) {
    return Tensor(g, g.add_input(name, type, role));
  };
  nn::UpdateOperands in{"w",
                        add("w", {DType::kF32, {2}}, Role::kParameter),
                        add("grad", {DType::kF32, {2}}, Role::kData),
                        add("lr", {DType::kF32, {}}, Role::kSchedule),
                        add("step", {DType::kI64, {}}, Role::kSchedule),
                        add("scale", {DType::kF32, {}}, Role::kSchedule)};
  nn::add_update(optimizer, in);
  for (const Input& input : g.inputs()) {
    if (input.role == Role::kState) out.states.push_back(input.name);
  }
  for (const Output& output : g.outputs()) {
    const std::string replaced = g.inputs()[static_cast<size_t>(g.value(output.updates).index)].name;
    out.outputs.push_back(output.name + " updates " + replaced);
  }
  return out;
}

TEST(Optimizer, plain_sgd_has_no_state) {
  const Built built = build(Sgd{});
  EXPECT_THAT(built.states, ElementsAre());
  EXPECT_THAT(built.outputs, ElementsAre("w updates w"));
}

TEST(Optimizer, sgd_with_momentum_keeps_a_velocity) {
  const Built built = build(Sgd{.momentum = 0.9});
  EXPECT_THAT(built.states, ElementsAre("w.velocity"));
  EXPECT_THAT(built.outputs, ElementsAre("w updates w", "w.velocity updates w.velocity"));
}

TEST(Optimizer, adam_adamw_and_lamb_keep_two_moments) {
  for (const Optimizer& optimizer : {Optimizer(Adam{}), Optimizer(AdamW{}), Optimizer(Lamb{})}) {
    const Built built = build(optimizer);
    EXPECT_THAT(built.states, ElementsAre("w.m", "w.v"));
    EXPECT_THAT(built.outputs, ElementsAre("w updates w", "w.m updates w.m", "w.v updates w.v"));
  }
}

TEST(Optimizer, its_options_reach_the_update) {
  // One step of AdamW by hand: m and v start at zero, so that the corrected moments are g and g^2.
  const Built built = build(AdamW{.beta1 = 0.8, .beta2 = 0.9, .eps = 0.5, .weight_decay = 0.1});
  std::map<std::string, HostTensor> inputs;
  inputs.emplace("w", HostTensor::of<float>({2}, {2, -4}));
  inputs.emplace("grad", HostTensor::of<float>({2}, {1, -3}));
  inputs.emplace("w.m", TensorType{DType::kF32, {2}});
  inputs.emplace("w.v", TensorType{DType::kF32, {2}});
  inputs.emplace("lr", HostTensor::of<float>({}, {0.1F}));
  inputs.emplace("step", HostTensor::of<int64_t>({}, {1}));
  inputs.emplace("scale", HostTensor::of<float>({}, {0.5F}));
  const auto out = interpret(built.graph, inputs);
  const auto expected = [](double w, double g) { return w - 0.1 * 0.1 * w - 0.1 * g / (std::abs(g) + 0.5); };
  EXPECT_NEAR(out.at("w").as<float>()[0], expected(2, 0.5), 1e-6);
  EXPECT_NEAR(out.at("w").as<float>()[1], expected(-4, -1.5), 1e-6);
  EXPECT_NEAR(out.at("w.m").as<float>()[1], 0.2 * -1.5, 1e-6);
  EXPECT_NEAR(out.at("w.v").as<float>()[1], 0.1 * 2.25, 1e-6);
}

TEST(Optimizer, its_learning_rate_can_be_asked) {
  EXPECT_EQ(learning_rate(Sgd{.lr = 0.5}), 0.5);
  EXPECT_EQ(learning_rate(Lamb{.lr = 0.25}), 0.25);
}

TEST(Optimizer, a_copy_keeps_its_numbers) {
  Optimizer optimizer = AdamW{.eps = 0.5};
  const Optimizer copy = optimizer;
  optimizer = Sgd{.momentum = 0.9, .nesterov = true};
  EXPECT_EQ(nn::describe(copy.spec()), "AdamW, beta1 0.9, beta2 0.999, eps 0.5, weight decay 0.01");
  EXPECT_EQ(nn::describe(optimizer.spec()), "SGD, momentum 0.9, nesterov");
}

// What a program adds to the list: every optimizer is looked at.
TEST(Optimizer, each_has_a_name_of_its_own_and_replaces_every_state_that_it_takes) {
  for (const std::string& kind : nn::optimizer_kinds()) {
    EXPECT_EQ(nn::optimizer_spec(kind)->kind(), kind);
    const Built built = build(nn::optimizer_spec(kind));
    std::vector<std::string> expected{"w updates w"};
    for (const std::string& state : built.states) expected.push_back(state + " updates " + state);
    EXPECT_THAT(built.outputs, testing::UnorderedElementsAreArray(expected)) << kind;
    ASSERT_EQ(built.graph.updates().size(), 1U) << kind;
    EXPECT_EQ(built.graph.updates()[0].states.size(), built.states.size()) << kind;
  }
}

TEST(Optimizer, NumbersWithWhichNoStepIsFiniteAreRefused) {
  const auto error_of = [](const Optimizer& optimizer) {
    try {
      check(optimizer);
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const Optimizer& fine : {Optimizer(Sgd{}), Optimizer(Adam{}), Optimizer(AdamW{}), Optimizer(Lamb{})})
    EXPECT_EQ(error_of(fine), "");
  for (const double lr : {kInf, 1e39, 0.0, -1.0, 1e-60, std::nan("")}) {
    EXPECT_THAT(error_of(AdamW{.lr = lr}), testing::HasSubstr("it must be above 0, within what f32 holds")) << lr;
  }
  EXPECT_EQ(error_of(Sgd{.momentum = 1}), "optimizer: momentum = 1; it must be from 0 to below 1");
  EXPECT_EQ(error_of(Adam{.beta2 = 0.9999999999}),
            "optimizer: beta2 = 0.9999999999; it must be from 0 to below 1, also in f32");
  EXPECT_EQ(error_of(Lamb{.weight_decay = kInf}), "optimizer: weight_decay = inf; it must be a number that f32 holds");
  EXPECT_EQ(error_of(AdamW{.eps = -1}), "optimizer: eps = -1; it must be 0 or more");
  EXPECT_EQ(error_of(Sgd{.nesterov = true}), "optimizer: nesterov = true needs a momentum above 0; it is 0");
}

}  // namespace
}  // namespace trireme::optimizer_test
