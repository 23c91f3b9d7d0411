#include "trireme/nn/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "trireme/base/error.h"
#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::moe_test {
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

// With as many places as tokens nothing is dropped, and each token gets the mean of its experts by their probabilities,
// computed here for all tokens by all experts; tokens come back in their order.
TEST(Moe, with_places_for_all_is_a_dense_evaluation_of_the_routed_experts_contracts_10) {
  constexpr int64_t kTokens = 12, kWidth = 3, kHidden = 5, kExperts = 4;
  for (const int64_t groups : {1, 2, 3}) {
    for (const bool gated : {false, true}) {
      Graph graph;
      const Tensor in(graph, graph.add_input("x", {DType::kF32, {kTokens, kWidth}}, Role::kData));
      nn::Trace trace(graph);
      nn::Moe moe(kWidth, kHidden,
                  {.name = "moe", .experts = kExperts, .capacity_factor = 2, .groups = groups, .gated = gated});
      ASSERT_EQ(moe.capacity(kTokens / groups), kTokens / groups);
      const Tensor y = moe(in);
      graph.add_output("y", y.id());
      const auto part = [&](const char* name, const Tensor& x, int64_t from, int64_t to) {
        const Tensor weight =
            trace.parameter(fmt::format("moe.{}.weight", name), {DType::kF32, {kExperts, from, to}}, {});
        const Tensor product = matmul(x, weight);
        if (gated) return product;
        return add(product, trace.parameter(fmt::format("moe.{}.bias", name), {DType::kF32, {kExperts, 1, to}}, {}));
      };
      const Tensor all = broadcast_to(unsqueeze(in, 0), {kExperts, kTokens, kWidth});
      const Tensor up = part("up", all, kWidth, kHidden);
      const Tensor hidden = gated ? mul(silu(part("gate", all, kWidth, kHidden)), up) : gelu(up, true);
      const Tensor by_token = transpose(part("down", hidden, kHidden, kWidth), {1, 0, 2});
      const Tensor router = trace.parameter("moe.router.weight", {DType::kF32, {kWidth, kExperts}}, {});
      const Tensor p = softmax(matmul(in, router));
      const Tensor first = one_hot(argmax(p), kExperts);
      const Tensor both = add(first, one_hot(argmax(sub(p, scale(first, 2))), kExperts));
      const Tensor weights = mul(p, both);
      const Tensor share = div(weights, broadcast_to(reduce_sum(weights, {-1}, true), weights.shape()));
      graph.add_output("dense",
                       reduce_sum(mul(by_token, broadcast_to(unsqueeze(share, 2), by_token.shape())), {1}).id());
      std::map<std::string, HostTensor> inputs;
      for (const Input& input : graph.inputs()) {
        HostTensor value(graph.type(input.value));
        float at = static_cast<float>(input.name.size());
        for (float& x : value.as<float>()) x = std::sin(at += 1.7F);
        inputs[input.name] = std::move(value);
      }
      const std::map<std::string, HostTensor> out = interpret(graph, inputs);
      for (size_t i = 0; i < kTokens * kWidth; ++i) {
        EXPECT_NEAR(out.at("y").as<float>()[i], out.at("dense").as<float>()[i], 1e-5)
            << groups << " groups, element " << i;
      }
    }
  }
}

constexpr int64_t kWide = 5, kMany = 8, kParts = 4, kBestParts = 2, kChosen = 3;

// DeepSeek-V3's choice of one token, written out: by score and bias, of the parts whose best two add up to the most,
// one after the other. Experts and their scores.
std::vector<std::pair<size_t, double>> plain_choice(std::span<const float> x, std::span<const float> weight,
                                                    std::span<const float> bias) {
  std::vector<double> score(kMany), by(kMany);
  for (size_t e = 0; e < kMany; ++e) {
    double logit = 0;
    for (size_t i = 0; i < kWide; ++i) logit += double{x[i]} * weight[i * kMany + e];
    score[e] = 1 / (1 + std::exp(-logit));
    by[e] = score[e] + bias[e];
  }
  std::vector<std::pair<double, size_t>> parts, reachable;  // the best first
  for (size_t part = 0; part < kParts; ++part) parts.emplace_back(-by[2 * part] - by[2 * part + 1], part);
  std::ranges::sort(parts);
  for (size_t i = 0; i < kBestParts; ++i) {
    for (const size_t e : {2 * parts[i].second, 2 * parts[i].second + 1}) reachable.emplace_back(-by[e], e);
  }
  std::ranges::sort(reachable);
  std::vector<std::pair<size_t, double>> out;
  for (size_t k = 0; k < kChosen; ++k) out.emplace_back(reachable[k].second, score[reachable[k].second]);
  return out;
}

// Gates are the scores alone, divided by their sum and scaled, and the bias follows the load.
TEST(Router, sigmoids_with_a_bias_choose_experts_of_the_best_parts) {
  constexpr size_t kTokens = 24;
  Graph graph;
  const Tensor in(graph, graph.add_input("x", {DType::kF32, {kTokens, kWide}}, Role::kData));
  nn::Trace trace(graph);
  nn::Router router(
      kWide, kMany, kChosen, 0, 0.02,
      {.sigmoid = true, .gate_scale = 2.5, .expert_nodes = kParts, .top_nodes = kBestParts, .bias_rate = 0.25});
  const std::vector<nn::Router::Choice> choices = router.choices_of(in);
  for (size_t k = 0; k < choices.size(); ++k) {
    graph.add_output(fmt::format("expert{}", k), choices[k].expert.id());
    graph.add_output(fmt::format("gate{}", k), choices[k].gate.id());
  }
  ASSERT_EQ(trace.buffer_values().size(), 1U);
  graph.add_output("bias", trace.buffer_values()[0].second.id());
  std::map<std::string, HostTensor> inputs;
  for (const Input& input : graph.inputs()) {
    HostTensor value(graph.type(input.value));
    float at = static_cast<float>(input.name.size());
    for (float& x : value.as<float>()) x = std::sin(at += 1.7F);
    inputs[input.name] = std::move(value);
  }
  const auto bias = inputs.at("router.bias").as<float>();
  const std::map<std::string, HostTensor> out = interpret(graph, inputs);
  std::vector<int64_t> load(kMany);
  for (size_t t = 0; t < kTokens; ++t) {
    const auto chosen = plain_choice(inputs.at("x").as<float>().subspan(t * kWide, kWide),
                                     inputs.at("router.weight").as<float>(), bias);
    double sum = 0;
    for (const auto& [expert, score] : chosen) sum += score;
    for (size_t k = 0; k < kChosen; ++k) {
      ++load[chosen[k].first];
      EXPECT_EQ(out.at(fmt::format("expert{}", k)).as<float>()[t], static_cast<float>(chosen[k].first)) << t;
      EXPECT_NEAR(out.at(fmt::format("gate{}", k)).as<float>()[t], 2.5 * chosen[k].second / sum, 1e-5) << t;
    }
  }
  constexpr int64_t kEven = kTokens * kChosen / kMany;
  for (size_t e = 0; e < kMany; ++e) {
    const float move = load[e] < kEven ? 0.25F : load[e] > kEven ? -0.25F : 0;
    EXPECT_EQ(out.at("bias").as<float>()[e], bias[e] + move) << "expert " << e << " with " << load[e] << " tokens";
  }
  EXPECT_NE(*std::ranges::min_element(load), *std::ranges::max_element(load)) << "the loads say nothing";
}

// 4 tokens in 2 groups, 2 experts, factor 1: one place a group; of each group's two tokens for expert 0 the second is
// dropped.
TEST(Moe, each_group_has_places_of_its_own) {
  const std::vector<float> y =
      run({.experts = 2, .top_k = 1, .capacity_factor = 1, .groups = 2}, {1, 0, 1, 0, 1, 0, 1, 0});
  EXPECT_NEAR(y[0], 1, 1e-3);
  EXPECT_EQ(y[2], 0);
  EXPECT_NEAR(y[4], 1, 1e-3);
  EXPECT_EQ(y[6], 0);
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
  EXPECT_THAT(error_of({.experts = 4, .top_k = 0}), HasSubstr("top_k is 0; it must be 1 or more"));
  EXPECT_THAT(error_of({.experts = 4, .top_k = 5}), HasSubstr("top_k is 5; it must be at most the 4 experts"));
  EXPECT_THAT(error_of({.experts = 4, .routing = {.expert_nodes = 3}}),
              HasSubstr("4 experts cannot lie in 3 equal parts"));
  EXPECT_THAT(error_of({.experts = 4, .routing = {.expert_nodes = 2, .top_nodes = 3}}),
              HasSubstr("top_nodes is 3; it must be from 1 to expert_nodes = 2"));
  EXPECT_THAT(error_of({.experts = 8, .top_k = 3, .routing = {.expert_nodes = 4, .top_nodes = 1}}),
              HasSubstr("top_k is 3, and 1 of 4 parts have 2 experts; use more top_nodes"));
  EXPECT_THAT(error_of({.routing = {.gate_scale = 0}}), HasSubstr("a gate_scale of 0; it must be above 0"));
  EXPECT_THAT(error_of({.routing = {.bias_rate = -1}}), HasSubstr("a bias_rate of -1; it must be from 0 to 1"));
  EXPECT_THAT(error_of({.experts = 1, .top_k = 2}), HasSubstr("top_k is 2; it must be at most the 1 expert"));
  EXPECT_THAT(error_of({.groups = 0}), HasSubstr("0 groups; it must be 1 or more"));
  EXPECT_THAT(error_of({.capacity_factor = 0}), HasSubstr("a capacity factor of 0"));
  EXPECT_THAT(error_of({.capacity_factor = -1}), HasSubstr("a capacity factor of -1"));
  EXPECT_THAT(error_of({.capacity_factor = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("a capacity factor of nan"));
  EXPECT_THAT(error_of({.capacity_factor = -std::numeric_limits<double>::infinity()}),
              HasSubstr("a capacity factor of -inf"));
  EXPECT_THAT(error_of({.aux_loss_factor = -0.1}), HasSubstr("an aux_loss_factor of -0.1; it must be 0 or more"));
  EXPECT_THAT(error_of({.aux_loss_factor = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("an aux_loss_factor of nan"));
}

// No expert is sent more tokens than there are, whatever the factor.
TEST(Moe, an_expert_has_at_most_a_place_for_every_token) {
  for (const double factor : {2.0, 100.0, 1e18, 1e300, std::numeric_limits<double>::infinity()}) {
    const nn::Moe moe(2, 4, {.experts = 2, .top_k = 1, .capacity_factor = factor});
    EXPECT_EQ(moe.capacity(256), 256) << factor;
    EXPECT_EQ(run({.experts = 2, .top_k = 1, .capacity_factor = factor}, {1, 0, 1, 0, 1, 0}),
              run({.experts = 2, .top_k = 1, .capacity_factor = 2}, {1, 0, 1, 0, 1, 0}));
  }
  EXPECT_EQ(nn::Moe(2, 4, {.experts = 2, .top_k = 1, .capacity_factor = 1e-300}).capacity(256), 1);
  EXPECT_EQ(nn::Moe(2, 4, {.experts = 2, .top_k = 1, .capacity_factor = 1.5}).capacity(256), 192);
}

// Rows of the experts' table are counted in f32.
TEST(Moe, more_places_than_f32_counts_exactly_are_refused) {
  Graph graph;
  const Tensor in(graph, graph.add_input("x", {DType::kF32, {1 << 18, 2}}, Role::kData));
  nn::Trace trace(graph);
  nn::Moe moe(2, 4, {.experts = 65, .top_k = 1, .capacity_factor = 65});
  try {
    moe(in);
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("Moe: 65 experts with 262144 places each are more than the 16777216 rows"));
  }
}

TEST(Moe, even_use_has_the_smallest_balance_loss) {
  const auto loss_of = [](const std::vector<float>& x) {
    Graph graph;
    const auto tokens = static_cast<int64_t>(x.size()) / 2;
    const Tensor in(graph, graph.add_input("x", {DType::kF32, {tokens, 2}}, Role::kData));
    nn::Trace trace(graph);
    nn::Moe moe(2, 4, {.experts = 2, .top_k = 1, .aux_loss_factor = 1});
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
}  // namespace trireme::moe_test
