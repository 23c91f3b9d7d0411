#include "trireme/nn/models/llama.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/nn/decoding.h"
#include "trireme/nn/models/language.h"

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
  const Tensor q = turned_by_position(by_head(q_proj_(x), config_.heads), config_.rope_theta);
  const Tensor k = turned_by_position(by_head(k_proj_(x), config_.kv_heads), config_.rope_theta);
  const Tensor v = by_head(v_proj_(x), config_.kv_heads);
  const Tensor out = causal_attention(q, k, v);
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

namespace {

constexpr double kMostTheta = std::numeric_limits<float>::max();

void check_theta(const std::string& name, const KeyTarget& target) {
  const double value = *std::get<double*>(target);
  require(value > 0 && value <= kMostTheta, "{} = {}; it must be above 0, within what f32 holds", name, value);
}

class LlamaSpec final : public ModelSpecOf<LlamaSpec> {
 public:
  std::string_view kind() const override { return "llama"; }
  std::string_view doc() const override {
    return "Llama, on tokens: grouped-query attention, rotary positions, SwiGLU";
  }
  Task task() const override { return Task::kTokens; }
  bool can_decode() const override { return c_.experts == 0; }
  Decoder decoder() const override { return Decoder::kLlama; }

  std::vector<Key> keys() override {
    std::vector<Key> out{{"layers", &c_.layers, "blocks", check_layers},
                         {"width", &c_.width, "width of the residual stream", check_size},
                         {"heads", &c_.heads, "attention heads; they must divide the width", check_size},
                         {"kv_heads", &c_.kv_heads,
                          "key and value heads; they must divide the heads; 0: as many as heads", check_size_or_0},
                         {"mlp_width", &c_.hidden,
                          "width of the MLP; 0: 8/3 of the width, rounded up to a multiple of 64", check_size_or_0},
                         {"rope_theta", &c_.rope_theta, "base of the rotary angles", check_theta},
                         {"tied", &c_.tied, "the output head shares the embedding's table"},
                         {"vocabulary", &c_.vocabulary, "number of tokens; 256 for bytes", check_size}};
    for (Key& key : mixture_keys(c_)) out.push_back(std::move(key));
    return out;
  }
  void check() const override {
    check_heads_divide(c_.width, c_.heads);
    require(c_.kv_heads == 0 || c_.heads % c_.kv_heads == 0,
            "configuration: model.heads = {} is not divisible by model.kv_heads = {}; use kv_heads that divide the "
            "heads",
            c_.heads, c_.kv_heads);
    require(c_.width / c_.heads % 2 == 0,
            "configuration: model.width = {} over model.heads = {} is a head size of {}; llama needs an even one",
            c_.width, c_.heads, c_.width / c_.heads);
    check_mixture(c_.experts, c_.top_k);
  }
  std::vector<KeyWithoutEffect> without_effect() const override { return without_mixture(c_.experts); }

  std::vector<FieldNeed> needs() const override { return needs_of_text(c_.vocabulary); }
  std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const override {
    LlamaConfig config = c_;
    config.context = context_of(fields);
    return std::make_unique<Llama>(config);
  }
  double least_parameters(std::span<const FieldSpec>) const override {
    const auto width = static_cast<double>(c_.width);
    const auto experts = static_cast<double>(std::max<int64_t>(1, c_.experts));
    const double shared = static_cast<double>(key_heads()) / static_cast<double>(c_.heads);
    const double hidden = c_.hidden == 0 ? 8 * width / 3 : static_cast<double>(c_.hidden);
    return static_cast<double>(c_.layers) * width * (width * (2 + 2 * shared) + 3 * hidden * experts) +
           width * static_cast<double>(c_.vocabulary) * (c_.tied ? 1 : 2);
  }

  Cuttable cuttable() const override {
    return {.weights = true,
            .positions = true,
            .vocabulary = c_.vocabulary,
            .mixture = true,
            .heads = key_heads(),
            .heads_key = "model.kv_heads",
            .experts = c_.experts,
            .expert_groups = c_.expert_groups};
  }
  // As of gpt: the products that read the residual stream by columns, those that write to it by rows. Weights are
  // [out, in].
  std::vector<Cut> cuts(const CutRequest& request) const override {
    const std::string& between = request.between;
    const std::string residual = residual_of(request);
    const std::string out = fmt::format(" -> [dp*ep, {}, -]", residual);
    const std::string columns = fmt::format("[dp*ep, {}, -], [tp, -]", between);
    const bool plain = c_.experts == 0;
    std::vector<Cut> rules{
        {"model.embed_tokens", request.vocabulary ? fmt::format("[tp, -], [dp*ep, {}]{}", between, out)
                                                  : fmt::format("[-, -], [dp*ep, {}]", residual)},
        {"model.layers.*.self_attn/attention", attention_cuts(request)}};
    for (const char* name :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"}) {
      if (plain || !std::string_view(name).starts_with("mlp"))
        rules.push_back({fmt::format("model.layers.*.{}", name), columns});
    }
    for (const char* name : {"self_attn.o_proj", "mlp.down_proj"}) {
      if (plain || !std::string_view(name).starts_with("mlp"))
        rules.push_back(
            {fmt::format("model.layers.*.{}", name), fmt::format("[dp*ep, {}, tp], [-, tp]{}", between, out)});
    }
    if (request.vocabulary) rules.push_back({c_.tied ? "/matmul" : "lm_head", columns});
    if (plain) return rules;
    for (Cut& cut : mixture_cuts("model.layers.*.moe", c_.expert_groups, true)) rules.push_back(std::move(cut));
    return rules;
  }

  std::string describe() const override { return describe_blocks(kind(), c_.layers, c_.width, c_.heads, c_.experts); }

 private:
  int64_t key_heads() const { return c_.kv_heads == 0 ? c_.heads : c_.kv_heads; }

  LlamaConfig c_;
};

}  // namespace

std::unique_ptr<ModelSpec> llama_spec() {
  return std::make_unique<LlamaSpec>();
}

}  // namespace trireme::nn
