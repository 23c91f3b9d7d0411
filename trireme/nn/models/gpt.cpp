#include "trireme/nn/models/gpt.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/nn/decoding.h"
#include "trireme/nn/models/language.h"

namespace trireme::nn {
namespace {

constexpr double kInitStd = 0.02;

LinearOptions conv1d(std::string name, double init_std = kInitStd) {
  return {.name = std::move(name), .in_out = true, .init_std = init_std};
}

// GPT-2 scales the projections back into the residual stream by 1/sqrt(2 layers).
double residual_std(const GptConfig& config) {
  return kInitStd / std::sqrt(2.0 * static_cast<double>(config.layers));
}

const GptConfig& checked(const GptConfig& config) {
  check_sizes("gpt", config.layers,
              {{"vocabulary", config.vocabulary},
               {"context", config.context},
               {"width", config.width},
               {"heads", config.heads}});
  return config;
}

}  // namespace

GptBlock::GptBlock(const GptConfig& config, std::string name)
    : Module(std::move(name)),
      width_(config.width),
      heads_(config.heads),
      ln_1_(config.width, "ln_1"),
      ln_2_(config.width, "ln_2"),
      attn_("attn"),
      mlp_("mlp"),
      c_attn_(config.width, 3, config.width, "c_attn", kInitStd),
      attn_proj_(config.width, config.width, conv1d("c_proj", residual_std(config))),
      c_fc_(config.width, 4 * config.width, conv1d("c_fc")),
      mlp_proj_(4 * config.width, config.width, conv1d("c_proj", residual_std(config))),
      attn_drop_(config.dropout, "resid_dropout"),
      mlp_drop_(config.dropout, "dropout") {
  if (config.experts == 0) return;
  moe_ = std::make_unique<Moe>(config.width, 4 * config.width,
                               MoeOptions{.name = "moe",
                                          .experts = config.experts,
                                          .top_k = config.top_k,
                                          .capacity_factor = config.capacity_factor,
                                          .groups = config.expert_groups,
                                          .aux_loss_factor = config.aux_loss_factor,
                                          .init_std = kInitStd});
}

Tensor GptBlock::attend(const Tensor& x) {
  const Scope scope(attn_);
  const std::vector<Tensor> qkv = split(c_attn_(x), -2, 3);
  const std::vector<int64_t> by_head{x.size(0), x.size(1), heads_, width_ / heads_};
  const Tensor q = reshape(qkv[0], by_head);
  const Tensor k = reshape(qkv[1], by_head);
  const Tensor v = reshape(qkv[2], by_head);
  const Tensor out = causal_attention(q, k, v);
  return attn_drop_(attn_proj_(reshape(out, x.shape())));
}

Tensor GptBlock::forward(const Tensor& x) {
  const Tensor a = add(x, attend(ln_1_(x)));
  const Tensor h = ln_2_(a);
  if (moe_) return add(a, mlp_drop_((*moe_)(h)));
  const Scope scope(mlp_);
  return add(a, mlp_drop_(mlp_proj_(gelu(c_fc_(h), true))));
}

Gpt::Gpt(const GptConfig& config)
    : config_(checked(config)),
      wte_(config.vocabulary, config.width, {"wte", kInitStd}),
      wpe_(config.context, config.width, {"wpe", kInitStd}),
      drop_(config.dropout, "drop"),
      ln_f_(config.width, "ln_f") {
  require(config.heads > 0 && config.width % config.heads == 0,
          "gpt: width {} is not divisible by {} heads; use a width that is a multiple of the heads", config.width,
          config.heads);
  require(config.layers > 0 && config.vocabulary > 0 && config.context > 0,
          "gpt: layers {}, vocabulary {} and context {} must be 1 or more", config.layers, config.vocabulary,
          config.context);
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(std::make_unique<GptBlock>(config, fmt::format("h.{}", i)));
  }
}

Tensor Gpt::forward(const Tensor& tokens) {
  require(tokens.rank() == 2 && tokens.size(1) <= config_.context,
          "gpt: tokens are {}; they must be [batch, up to {} positions]", to_string(tokens.type()), config_.context);
  const Tensor places_of_tokens = positions(tokens);
  const Tensor words = wte_(tokens);  // one after the other: the order of the graph must not hang on the compiler's
  const Tensor places = wpe_(places_of_tokens);
  Tensor x = drop_(add(words, places));
  for (const auto& block : blocks_) x = (*block)(x);
  const Tensor last = ln_f_(x);
  return matmul(last, Trace::current().in_compute_type(wte_.weight()), false, true);
}

namespace {

class GptSpec final : public ModelSpecOf<GptSpec> {
 public:
  std::string_view kind() const override { return "gpt"; }
  std::string_view doc() const override { return "GPT-2, on tokens"; }
  Task task() const override { return Task::kTokens; }
  bool can_decode() const override { return c_.experts == 0; }
  Decoder decoder() const override { return Decoder::kGpt2; }

  std::vector<Key> keys() override {
    std::vector<Key> out{{"layers", &c_.layers, "blocks", check_layers},
                         {"width", &c_.width, "width of the residual stream", check_size},
                         {"heads", &c_.heads, "attention heads; they must divide the width", check_size},
                         {"vocabulary", &c_.vocabulary, "number of tokens; 256 for bytes", check_size}};
    for (Key& key : mixture_keys(c_)) out.push_back(std::move(key));
    out.push_back({.name = "dropout",
                   .target = &c_.dropout,
                   .doc = "probability, at least 0 and below 1",
                   .check = check_share,
                   .on_resume = OnResume::kTold});
    return out;
  }
  void check() const override {
    check_heads_divide(c_.width, c_.heads);
    check_mixture(c_.experts, c_.top_k);
  }
  std::vector<KeyWithoutEffect> without_effect() const override { return without_mixture(c_.experts); }

  std::vector<FieldNeed> needs() const override { return needs_of_text(c_.vocabulary); }
  std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const override {
    GptConfig config = c_;
    config.context = context_of(fields);
    return std::make_unique<Gpt>(config);
  }
  double least_parameters(std::span<const FieldSpec> fields) const override {
    const auto width = static_cast<double>(c_.width);
    const auto experts = static_cast<double>(std::max<int64_t>(1, c_.experts));
    return static_cast<double>(c_.layers) * width * width * (4 + 8 * experts) +
           width * static_cast<double>(c_.vocabulary + context_of(fields));
  }

  Cuttable cuttable() const override {
    return {.weights = true,
            .positions = true,
            .vocabulary = c_.vocabulary,
            .mixture = true,
            .heads = c_.heads,
            .heads_key = "model.heads",
            .experts = c_.experts,
            .expert_groups = c_.expert_groups};
  }
  // As Megatron-LM: columns of the first product, rows of the second.
  std::vector<Cut> cuts(const CutRequest& request) const override {
    const std::string& between = request.between;
    const std::string residual = residual_of(request);
    const std::string out = fmt::format(" -> [dp*ep, {}, -]", residual);
    std::vector<Cut> rules{
        {"wte", request.vocabulary ? fmt::format("[tp, -], [dp*ep, {}]{}", between, out)
                                   : fmt::format("[-, -], [dp*ep, {}]", residual)},
        {"wpe", fmt::format("[-, -], [{}]", residual)},
        {"h.*.attn.c_attn", fmt::format("[dp*ep, {}, -], [-, -, tp]", between)},
        {"h.*.attn/attention", attention_cuts(request)},
        {"h.*.attn.c_proj", fmt::format("[dp*ep, {}, tp], [tp, -]{}", between, out)},
    };
    if (request.vocabulary) rules.push_back({"/matmul", fmt::format("[dp*ep, {}, -], [tp, -]", between)});
    if (c_.experts > 0) {
      for (Cut& cut : mixture_cuts("h.*.moe", c_.expert_groups, false)) rules.push_back(std::move(cut));
      return rules;
    }
    rules.push_back({"h.*.mlp.c_fc", fmt::format("[dp*ep, {}, -], [-, tp]", between)});
    rules.push_back({"h.*.mlp.c_proj", fmt::format("[dp*ep, {}, tp], [tp, -]{}", between, out)});
    return rules;
  }

  std::string describe() const override { return describe_blocks(kind(), c_.layers, c_.width, c_.heads, c_.experts); }

 private:
  GptConfig c_;
};

}  // namespace

std::unique_ptr<ModelSpec> gpt_spec() {
  return std::make_unique<GptSpec>();
}

}  // namespace trireme::nn
