#include "trireme/nn/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme {
namespace {

using testing::HasSubstr;

// Two experts of width 2; the router sends a token to the expert with its larger element.
std::vector<float> run(nn::MoeOptions options, const std::vector<float>& x) {
  Graph graph;
  const auto tokens = static_cast<int64_t>(x.size()) / 2;
  const Tensor in(graph, graph.add_input("x", {DType::kF32, {tokens, 2}}, Role::kData));
  nn::Trace trace(graph);
  nn::Moe moe(2, 4, std::move(options));
  const Tensor y = moe(in);
  graph.add_output("y", y.id());
  std::map<std::string, HostTensor> inputs;
  for (const Input& input : graph.inputs()) {
    HostTensor value(graph.type(input.value));
    const auto values = value.as<float>();
    if (input.name == "x") {
      std::copy(x.begin(), x.end(), values.begin());
    } else if (input.name.ends_with("router.weight")) {
      values[0] = values[3] = 10;  // the identity, sharply
    } else if (input.name.ends_with("down.bias")) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / 2 + 1);  // expert e adds e + 1
    }
    inputs[input.name] = std::move(value);
  }
  const std::map<std::string, HostTensor> out = interpret(graph, inputs);
  const auto values = out.at("y").as<float>();
  return {values.begin(), values.end()};
}

TEST(Moe, a_token_goes_to_its_best_expert) {
  const std::vector<float> y = run({.experts = 2, .top_k = 1, .capacity_factor = 2}, {1, 0, 0, 1, 1, 0});
  // The gate is the probability, all but 1; the weights are zero, so an expert gives its bias.
  EXPECT_NEAR(y[0], 1, 1e-3);
  EXPECT_NEAR(y[2], 2, 1e-3);
  EXPECT_NEAR(y[4], 1, 1e-3);
}

TEST(Moe, tokens_beyond_an_experts_places_are_dropped_in_the_order_of_the_batch) {
  // 4 tokens, 2 experts, factor 1: 2 places each; three tokens want expert 0.
  const std::vector<float> y = run({.experts = 2, .top_k = 1, .capacity_factor = 1}, {1, 0, 1, 0, 1, 0, 0, 1});
  EXPECT_NEAR(y[0], 1, 1e-3);
  EXPECT_NEAR(y[2], 1, 1e-3);
  EXPECT_EQ(y[4], 0) << "the third finds no place";
  EXPECT_NEAR(y[6], 2, 1e-3);
}

TEST(Moe, two_experts_share_a_token_by_their_probabilities) {
  const std::vector<float> y = run({.experts = 2, .top_k = 2, .capacity_factor = 1}, {0.5F, 0.5F, 0.1F, 0.1F});
  for (const float value : y) EXPECT_NEAR(value, 1.5, 1e-5);
}

TEST(Moe, options_that_cannot_be_are_refused) {
  const auto error_of = [](nn::MoeOptions options) -> std::string {
    try {
      nn::Moe moe(2, 4, std::move(options));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of({.experts = 4, .top_k = 3}), HasSubstr("top_k is 3; it must be 1 or 2"));
  EXPECT_THAT(error_of({.experts = 1, .top_k = 2}), HasSubstr("top_k is 2 of 1 experts"));
  EXPECT_THAT(error_of({.capacity_factor = 0}), HasSubstr("a capacity factor of 0"));
}

TEST(Moe, even_use_has_the_smallest_balance_loss) {
  const auto loss_of = [](const std::vector<float>& x) {
    Graph graph;
    const auto tokens = static_cast<int64_t>(x.size()) / 2;
    const Tensor in(graph, graph.add_input("x", {DType::kF32, {tokens, 2}}, Role::kData));
    nn::Trace trace(graph);
    nn::Moe moe(2, 4, {.experts = 2, .top_k = 1, .balance = 1});
    moe(in);
    EXPECT_EQ(trace.losses().size(), 1U);
    graph.add_output("loss", trace.losses()[0].id());
    std::map<std::string, HostTensor> inputs;
    for (const Input& input : graph.inputs()) {
      HostTensor value(graph.type(input.value));
      if (input.name == "x") std::copy(x.begin(), x.end(), value.as<float>().begin());
      if (input.name.ends_with("router.weight")) value.as<float>()[0] = value.as<float>()[3] = 10;
      inputs[input.name] = std::move(value);
    }
    return interpret(graph, inputs).at("loss").as<float>()[0];
  };
  EXPECT_NEAR(loss_of({1, 0, 0, 1}), 1, 1e-3);
  EXPECT_NEAR(loss_of({1, 0, 1, 0}), 2, 1e-3);
}

}  // namespace
}  // namespace trireme
