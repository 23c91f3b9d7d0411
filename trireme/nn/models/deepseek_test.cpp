#include "trireme/nn/models/deepseek.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <span>

#include "trireme/base/error.h"
#include "trireme/op/interpret.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::nn::deepseek_test {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr DeepSeekConfig kTiny{.vocabulary = 11,
                               .context = 8,
                               .layers = 2,
                               .width = 12,
                               .heads = 2,
                               .query_rank = 6,
                               .key_rank = 5,
                               .head_size = 4,
                               .rotary_size = 4,
                               .value_size = 3,
                               .hidden = 10,
                               .experts = 4,
                               .shared_experts = 2,
                               .expert_hidden = 7};

std::vector<std::string> inputs_of(const DeepSeekConfig& config, Role role) {
  Graph graph;
  DeepSeek model(config);
  const Trace trace(graph);
  graph.add_output("y", model({graph, graph.add_input("x", {DType::kI32, {2, 4}}, Role::kData)}).id());
  std::vector<std::string> out;
  for (const Input& input : graph.inputs()) {
    if (input.role == role) out.push_back(input.name + " " + to_string(graph.type(input.value)));
  }
  return out;
}

TEST(DeepSeek, its_parameters_have_the_names_and_shapes_of_hugging_face_but_for_the_experts) {
  std::vector<std::string> expected{"model.embed_tokens.weight f32[11,12]"};
  const auto layer = [&](const std::string& scope, std::vector<std::string> mlp) {
    for (const std::string name : {"input_layernorm.weight f32[12]", "self_attn.q_a_proj.weight f32[6,12]",
                                   "self_attn.q_a_layernorm.weight f32[6]", "self_attn.q_b_proj.weight f32[16,6]",
                                   "self_attn.kv_a_proj_with_mqa.weight f32[9,12]",
                                   "self_attn.kv_a_layernorm.weight f32[5]", "self_attn.kv_b_proj.weight f32[14,5]",
                                   "self_attn.o_proj.weight f32[12,6]", "post_attention_layernorm.weight f32[12]"}) {
      expected.push_back(scope + name);
    }
    for (const std::string& name : mlp) expected.push_back(scope + name);
  };
  layer("model.layers.0.",
        {"mlp.gate_proj.weight f32[10,12]", "mlp.up_proj.weight f32[10,12]", "mlp.down_proj.weight f32[12,10]"});
  layer("model.layers.1.",
        {"moe.router.weight f32[12,4]", "moe.gate.weight f32[4,12,7]", "moe.up.weight f32[4,12,7]",
         "moe.down.weight f32[4,7,12]", "mlp.shared_experts.gate_proj.weight f32[14,12]",
         "mlp.shared_experts.up_proj.weight f32[14,12]", "mlp.shared_experts.down_proj.weight f32[12,14]"});
  expected.insert(expected.end(), {"model.norm.weight f32[12]", "lm_head.weight f32[11,12]"});
  EXPECT_THAT(inputs_of(kTiny, Role::kParameter), ElementsAreArray(expected));
  DeepSeekConfig direct = kTiny;
  direct.query_rank = 0;
  EXPECT_THAT(inputs_of(direct, Role::kParameter),
              testing::Contains("model.layers.0.self_attn.q_proj.weight f32[16,12]"));
}

using Vector = std::vector<double>;
using Tensors = std::map<std::string, HostTensor>;

// Latent attention as the paper writes it (DeepSeek-V2, equations 9 to 17 and 37 to 47), position by position in double
// precision, with the released weights' neighbouring pairs.
class PlainAttention {
 public:
  PlainAttention(const DeepSeekConfig& config, const Tensors& inputs) : c_(config), inputs_(inputs) {}

  void add_position(const Vector& x) {
    const auto at = static_cast<int64_t>(heads_.size());
    const Vector queries = product("q_b_proj", norm("q_a_layernorm", product("q_a_proj", x)));
    const Vector latent = turned(product("kv_a_proj_with_mqa", x), c_.key_rank, at);
    const Vector both = product("kv_b_proj", norm("kv_a_layernorm", part(latent, 0, c_.key_rank)));
    heads_.emplace_back();
    for (int64_t h = 0; h < c_.heads; ++h) {
      const int64_t size = c_.head_size + c_.rotary_size, each = c_.head_size + c_.value_size;
      Vector key = part(both, h * each, c_.head_size);
      key.insert(key.end(), latent.begin() + c_.key_rank, latent.end());
      heads_.back().push_back({turned(part(queries, h * size, size), c_.head_size, at), key,
                               part(both, h * each + c_.head_size, c_.value_size)});
    }
  }

  // What the position gets from those before it and itself.
  Vector result(size_t position) const {
    Vector together;
    for (size_t h = 0; h < heads_[position].size(); ++h) {
      const Vector& q = heads_[position][h].q;
      Vector sum(static_cast<size_t>(c_.value_size));
      double total = 0;
      for (size_t j = 0; j <= position; ++j) {
        const Head& seen = heads_[j][h];
        const double score = std::inner_product(q.begin(), q.end(), seen.k.begin(), 0.0);
        const double weight = std::exp(score / std::sqrt(static_cast<double>(q.size())));
        total += weight;
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * seen.v[i];
      }
      for (const double each : sum) together.push_back(each / total);
    }
    return product("o_proj", together);
  }

 private:
  struct Head {
    Vector q, k, v;
  };

  static Vector part(const Vector& of, int64_t from, int64_t size) {
    return {of.begin() + from, of.begin() + from + size};
  }
  std::span<const float> weight(const std::string& name) const {
    return inputs_.at("self_attn." + name + ".weight").as<float>();
  }
  Vector product(const std::string& name, const Vector& x) const {
    const auto w = weight(name);
    Vector out(w.size() / x.size());
    for (size_t i = 0; i < w.size(); ++i) out[i / x.size()] += w[i] * x[i % x.size()];
    return out;
  }
  Vector norm(const std::string& name, Vector x) const {
    const auto w = weight(name);
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double by = std::sqrt(squares / static_cast<double>(x.size()) + c_.eps);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= w[i] / by;
    return x;
  }
  // The elements from one on, in pairs of neighbours.
  Vector turned(Vector x, int64_t from, int64_t position) const {
    for (int64_t i = 0; i < c_.rotary_size / 2; ++i) {
      const double share = static_cast<double>(2 * i) / static_cast<double>(c_.rotary_size);
      const double angle = static_cast<double>(position) * std::pow(c_.rope_theta, -share);
      double &a = x[static_cast<size_t>(from + 2 * i)], &b = x[static_cast<size_t>(from + 2 * i + 1)];
      const double turned_a = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned_a;
    }
    return x;
  }

  const DeepSeekConfig& c_;
  const Tensors& inputs_;
  std::vector<std::vector<Head>> heads_;  // by position
};

TEST(DeepSeek, latent_attention_is_that_of_the_paper) {
  constexpr int64_t kPositions = 5;
  Graph graph;
  LatentAttention attention(kTiny);
  const Trace trace(graph);
  graph.add_output(
      "y", attention({graph, graph.add_input("x", {DType::kF32, {1, kPositions, kTiny.width}}, Role::kData)}).id());
  Tensors inputs;
  for (const Input& input : graph.inputs()) {
    HostTensor value(graph.type(input.value));
    float at = static_cast<float>(input.name.size());
    for (float& x : value.as<float>()) x = std::sin(at += 1.3F) + 0.1F;
    inputs[input.name] = std::move(value);
  }
  PlainAttention plain(kTiny, inputs);
  const auto x = inputs.at("x").as<float>();
  for (int64_t p = 0; p < kPositions; ++p)
    plain.add_position({x.begin() + p * kTiny.width, x.begin() + (p + 1) * kTiny.width});
  const Tensors out = interpret(graph, inputs);
  for (size_t p = 0; p < kPositions; ++p) {
    const Vector y = plain.result(p);
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_NEAR(out.at("y").as<float>()[p * y.size() + i], y[i], 2e-5) << "position " << p << ", element " << i;
  }
}

TEST(DeepSeek, configurations_that_cannot_be_are_refused) {
  const auto error_of = [](const std::function<void(DeepSeekConfig&)>& change) -> std::string {
    DeepSeekConfig config = kTiny;
    change(config);
    try {
      DeepSeek model(config);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of([](DeepSeekConfig& c) { c.layers = 0; }), HasSubstr("deepseek: layers 0,"));
  EXPECT_THAT(error_of([](DeepSeekConfig& c) { c.rotary_size = 3; }), HasSubstr("rotary_size is 3; it must be even"));
  EXPECT_THAT(error_of([](DeepSeekConfig& c) { c.value_size = 9; }),
              HasSubstr("value_size is 9; it must be at most head_size + rotary_size = 8"));
  EXPECT_THAT(error_of([](DeepSeekConfig& c) { c.key_rank = 0; }), HasSubstr("key_rank 0"));
  EXPECT_THAT(error_of([](DeepSeekConfig& c) { c.top_k = 5; }),
              HasSubstr("top_k is 5; it must be at most the 4 experts"));
}

}  // namespace
}  // namespace trireme::nn::deepseek_test
