#include "trireme/nn/models/llama.h"

#include "trireme/base/error.h"
#include "trireme/nn/limits.h"

namespace trireme::nn {
namespace {

LinearOptions projection(const LlamaConfig& config, std::string name) {
  return {.name = std::move(name), .bias = false, .init_std = config.init_std};
}

// What follows where 0 is given; throws where the sizes do not fit.
LlamaConfig settled(LlamaConfig config) {
  require(config.layers > 0 && config.vocabulary > 0 && config.context > 0,
          "llama: layers {}, vocabulary {} and context {} must be 1 or more", config.layers, config.vocabulary,
          config.context);
  require(config.heads > 0 && config.width > 0 && config.width % config.heads == 0,
          "llama: width {} is not divisible by {} heads; use a width that is a multiple of the heads", config.width,
          config.heads);
  require(config.width / config.heads % 2 == 0,
          "llama: a head's size is {} (width {} over {} heads); it must be even, because elements "
          "turn in pairs",
          config.width / config.heads, config.width, config.heads);
  check_sizes("llama", config.layers,
              {{"vocabulary", config.vocabulary}, {"context", config.context}, {"width", config.width}});
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  require(config.kv_heads > 0 && config.heads % config.kv_heads == 0,
          "llama: {} heads are not divisible by {} kv_heads; each key and value head serves as "
          "many query heads",
          config.heads, config.kv_heads);
  require(config.hidden >= 0, "llama: the MLP's size is {}; it must be 1 or more, or 0 for 8/3 of the width",
          config.hidden);
  if (config.hidden == 0) config.hidden = (8 * config.width + 3 * 64 - 1) / (3 * 64) * 64;
  return config;
}

}  // namespace

LlamaBlock::LlamaBlock(const LlamaConfig& config, std::string name)
    : Module(std::move(name)),
      config_(config),
      input_layernorm_(config.width, "input_layernorm", config.eps),
      post_attention_layernorm_(config.width, "post_attention_layernorm", config.eps),
      self_attn_("self_attn"),
      mlp_("mlp"),
      q_proj_(config.width, config.width, projection(config, "q_proj")),
      k_proj_(config.width, config.width / config.heads * config.kv_heads, projection(config, "k_proj")),
      v_proj_(config.width, config.width / config.heads * config.kv_heads, projection(config, "v_proj")),
      o_proj_(config.width, config.width, projection(config, "o_proj")),
      gate_proj_(config.width, config.hidden, projection(config, "gate_proj")),
      up_proj_(config.width, config.hidden, projection(config, "up_proj")),
      down_proj_(config.hidden, config.width, projection(config, "down_proj")) {
  if (config.experts == 0) return;
  moe_ = std::make_unique<Moe>(config.width, config.hidden,
                               MoeOptions{.name = "moe",
                                          .experts = config.experts,
                                          .top_k = config.top_k,
                                          .capacity_factor = config.capacity_factor,
                                          .groups = config.expert_groups,
                                          .gated = true,
                                          .aux_loss_factor = config.aux_loss_factor,
                                          .init_std = config.init_std});
}

Tensor LlamaBlock::attend(const Tensor& x) {
  const Scope scope(self_attn_);
  const auto by_head = [&](const Tensor& t, int64_t heads) {
    return reshape(t, {x.size(0), x.size(1), heads, config_.width / config_.heads});
  };
  const Tensor q = rotary(by_head(q_proj_(x), config_.heads), config_.rope_theta);
  const Tensor k = rotary(by_head(k_proj_(x), config_.kv_heads), config_.rope_theta);
  const Tensor v = by_head(v_proj_(x), config_.kv_heads);
  const Tensor out = attention(q, k, v, {.causal = true});
  return o_proj_(reshape(out, x.shape()));
}

Tensor LlamaBlock::mix(const Tensor& x) {
  const Scope scope(mlp_);
  const Tensor gate = silu(gate_proj_(x));
  return down_proj_(mul(gate, up_proj_(x)));
}

Tensor LlamaBlock::forward(const Tensor& x) {
  const Tensor a = add(x, attend(input_layernorm_(x)));
  const Tensor h = post_attention_layernorm_(a);
  return add(a, moe_ ? (*moe_)(h) : mix(h));
}

Llama::Llama(const LlamaConfig& config)
    : config_(settled(config)),
      model_("model"),
      embed_tokens_(config.vocabulary, config.width, {"embed_tokens", config.init_std}),
      norm_(config.width, "norm", config.eps),
      lm_head_(config.width, config.vocabulary, projection(config, "lm_head")) {
  for (int64_t i = 0; i < config_.layers; ++i) {
    blocks_.push_back(std::make_unique<LlamaBlock>(config_, fmt::format("layers.{}", i)));
  }
}

Tensor Llama::forward(const Tensor& tokens) {
  require(tokens.rank() == 2 && tokens.size(1) <= config_.context,
          "llama: tokens are {}; they must be [batch, up to {} positions]", to_string(tokens.type()), config_.context);
  Tensor x;
  {
    const Scope scope(model_);
    x = embed_tokens_(tokens);
    for (const auto& block : blocks_) x = (*block)(x);
    x = norm_(x);
  }
  return config_.tied ? matmul(x, Trace::current().in_compute_type(embed_tokens_.weight()), false, true) : lm_head_(x);
}

}  // namespace trireme::nn
