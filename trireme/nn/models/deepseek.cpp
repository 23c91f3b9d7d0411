#include "trireme/nn/models/deepseek.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/nn/decoding.h"
#include "trireme/nn/models/language.h"

namespace trireme::nn {
namespace {

Linear no_bias(int64_t in, int64_t out, const DeepSeekConfig& config, const char* name) {
  return Linear(in, out, {.name = name, .bias = false, .init_std = config.init_std});
}

// Throws where the sizes do not fit.
const DeepSeekConfig& settled_deepseek(const DeepSeekConfig& c) {
  require(c.layers > 0 && c.vocabulary > 0 && c.context > 0 && c.width > 0 && c.heads > 0,
          "deepseek: layers {}, vocabulary {}, context {}, width {} and heads {} must be 1 or more", c.layers,
          c.vocabulary, c.context, c.width, c.heads);
  require(c.key_rank > 0 && c.query_rank >= 0 && c.head_size > 0 && c.value_size > 0,
          "deepseek: key_rank {}, head_size {} and value_size {} must be 1 or more, and query_rank {} 0 or more",
          c.key_rank, c.head_size, c.value_size, c.query_rank);
  require(c.rotary_size > 0 && c.rotary_size % 2 == 0,
          "deepseek: rotary_size is {}; it must be even, because elements turn in pairs", c.rotary_size);
  require(c.value_size <= c.head_size + c.rotary_size,
          "deepseek: value_size is {}; it must be at most head_size + rotary_size = {}", c.value_size,
          c.head_size + c.rotary_size);
  require(
      c.dense_layers >= 0 && c.experts >= 0 && c.shared_experts >= 0 && c.hidden > 0 && c.expert_hidden > 0,
      "deepseek: dense_layers {}, experts {} and shared_experts {} must be 0 or more, hidden {} and expert_hidden {} "
      "1 or more",
      c.dense_layers, c.experts, c.shared_experts, c.hidden, c.expert_hidden);
  check_sizes("deepseek", c.layers, {{"vocabulary", c.vocabulary}, {"context", c.context}, {"width", c.width}});
  return c;
}

}  // namespace

LatentAttention::LatentAttention(const DeepSeekConfig& config)
    : Module("self_attn"),
      config_(config),
      q_proj_(no_bias(config.width, config.heads * (config.head_size + config.rotary_size), config, "q_proj")),
      q_a_proj_(no_bias(config.width, std::max<int64_t>(1, config.query_rank), config, "q_a_proj")),
      q_a_layernorm_(std::max<int64_t>(1, config.query_rank), "q_a_layernorm", config.eps),
      q_b_proj_(no_bias(std::max<int64_t>(1, config.query_rank), config.heads * (config.head_size + config.rotary_size),
                        config, "q_b_proj")),
      kv_a_proj_with_mqa_(no_bias(config.width, config.key_rank + config.rotary_size, config, "kv_a_proj_with_mqa")),
      kv_a_layernorm_(config.key_rank, "kv_a_layernorm", config.eps),
      kv_b_proj_(no_bias(config.key_rank, config.heads * (config.head_size + config.value_size), config, "kv_b_proj")),
      o_proj_(no_bias(config.heads * config.value_size, config.width, config, "o_proj")) {}

// Pairs are neighbours in the weights of the released models, and half a size apart in the op.
Tensor LatentAttention::turned(const Tensor& x) const {
  const Shape in_pairs{x.size(0), x.size(1), x.size(2), x.size(3) / 2, 2};
  return turned_by_position(reshape(swap_dims(reshape(x, in_pairs), 3, 4), x.shape()), config_.rope_theta);
}

Tensor LatentAttention::queries(const Tensor& x) {
  const Tensor all = config_.query_rank == 0 ? q_proj_(x) : q_b_proj_(q_a_layernorm_(q_a_proj_(x)));
  const Tensor q = reshape(all, {x.size(0), x.size(1), config_.heads, config_.head_size + config_.rotary_size});
  const std::vector<Tensor> parts = split(q, 3, {config_.head_size, config_.rotary_size});
  return concat({parts[0], turned(parts[1])}, 3);
}

Tensor LatentAttention::forward(const Tensor& x) {
  const DeepSeekConfig& c = config_;
  const int64_t batch = x.size(0), positions = x.size(1), size = c.head_size + c.rotary_size;
  const Tensor q = queries(x);
  const std::vector<Tensor> latent = split(kv_a_proj_with_mqa_(x), 2, {c.key_rank, c.rotary_size});
  const Tensor both =
      reshape(kv_b_proj_(kv_a_layernorm_(latent[0])), {batch, positions, c.heads, c.head_size + c.value_size});
  const std::vector<Tensor> parts = split(both, 3, {c.head_size, c.value_size});
  const Tensor of_all_heads = turned(unsqueeze(latent[1], 2));
  const Tensor k = concat({parts[0], broadcast_to(of_all_heads, {batch, positions, c.heads, c.rotary_size})}, 3);
  // The op's heads have one size, so the values are filled up with zeros.
  const bool fits = c.value_size == size;
  const Tensor v = fits ? parts[1] : pad(parts[1], {0, 0, 0, 0}, {0, 0, 0, size - c.value_size});
  const Tensor out = causal_attention(q, k, v);
  const Tensor values = fits ? out : slice(out, 3, 0, c.value_size);
  return o_proj_(reshape(values, {batch, positions, c.heads * c.value_size}));
}

SwiGlu::SwiGlu(int64_t width, int64_t hidden, double init_std, std::string name)
    : Module(std::move(name)),
      gate_proj_(width, hidden, {.name = "gate_proj", .bias = false, .init_std = init_std}),
      up_proj_(width, hidden, {.name = "up_proj", .bias = false, .init_std = init_std}),
      down_proj_(hidden, width, {.name = "down_proj", .bias = false, .init_std = init_std}) {}

Tensor SwiGlu::forward(const Tensor& x) {
  const Tensor gate = silu(gate_proj_(x));
  return down_proj_(mul(gate, up_proj_(x)));
}

DeepSeekBlock::DeepSeekBlock(const DeepSeekConfig& config, int64_t number)
    : Module(fmt::format("layers.{}", number)),
      input_layernorm_(config.width, "input_layernorm", config.eps),
      post_attention_layernorm_(config.width, "post_attention_layernorm", config.eps),
      self_attn_(config),
      mlp_("mlp") {
  if (config.experts == 0 || number < config.dense_layers) {
    dense_ = std::make_unique<SwiGlu>(config.width, config.hidden, config.init_std, "mlp");
    return;
  }
  moe_ = std::make_unique<Moe>(config.width, config.expert_hidden,
                               MoeOptions{.name = "moe",
                                          .experts = config.experts,
                                          .top_k = config.top_k,
                                          .capacity_factor = config.capacity_factor,
                                          .groups = config.expert_groups,
                                          .gated = true,
                                          .aux_loss_factor = config.aux_loss_factor,
                                          .init_std = config.init_std,
                                          .routing = config.routing});
  if (config.shared_experts == 0) return;
  shared_ = std::make_unique<SwiGlu>(config.width, config.shared_experts * config.expert_hidden, config.init_std,
                                     "shared_experts");
}

Tensor DeepSeekBlock::forward(const Tensor& x) {
  const Tensor a = add(x, self_attn_(input_layernorm_(x)));
  const Tensor h = post_attention_layernorm_(a);
  if (dense_) return add(a, (*dense_)(h));
  const Tensor routed = (*moe_)(h);
  if (!shared_) return add(a, routed);
  const Scope scope(mlp_);
  return add(a, add(routed, (*shared_)(h)));
}

DeepSeek::DeepSeek(const DeepSeekConfig& config)
    : config_(settled_deepseek(config)),
      model_("model"),
      embed_tokens_(config.vocabulary, config.width, {"embed_tokens", config.init_std}),
      norm_(config.width, "norm", config.eps),
      lm_head_(config.width, config.vocabulary, {.name = "lm_head", .bias = false, .init_std = config.init_std}) {
  for (int64_t i = 0; i < config_.layers; ++i) blocks_.push_back(std::make_unique<DeepSeekBlock>(config_, i));
}

Tensor DeepSeek::forward(const Tensor& tokens) {
  require(tokens.rank() == 2 && tokens.size(1) <= config_.context,
          "deepseek: tokens are {}; they must be [batch, up to {} positions]", to_string(tokens.type()),
          config_.context);
  Tensor x;
  {
    const Scope scope(model_);
    x = embed_tokens_(tokens);
    for (const auto& block : blocks_) x = (*block)(x);
    x = norm_(x);
  }
  return lm_head_(x);
}

namespace {

constexpr NameOf<bool> kScores[] = {{"sigmoid", true}, {"softmax", false}};

void check_rotary_size(const std::string& name, const KeyTarget& target) {
  check_size(name, target);
  const int64_t value = *std::get<int64_t*>(target);
  require(value % 2 == 0, "{} = {}; it must be even, because elements turn in pairs", name, value);
}

void check_base(const std::string& name, const KeyTarget& target) {
  const double value = *std::get<double*>(target);
  require(value > 0 && value <= std::numeric_limits<float>::max(), "{} = {}; it must be above 0, within what f32 holds",
          name, value);
}

void check_bias_rate(const std::string& name, const KeyTarget& target) {
  const double value = *std::get<double*>(target);
  require(value >= 0 && value <= 1, "{} = {}; it must be from 0 to 1", name, value);
}

class DeepSeekSpec final : public ModelSpecOf<DeepSeekSpec> {
 public:
  std::string_view kind() const override { return "deepseek"; }
  std::string_view doc() const override {
    return "DeepSeek-V2 and V3, on tokens: latent attention, shared experts and many that tokens are routed to";
  }
  Task task() const override { return Task::kTokens; }
  bool can_decode() const override { return c_.experts == 0; }

  std::vector<Key> keys() override {
    std::vector<Key> out{
        {"layers", &c_.layers, "blocks", check_layers},
        {"width", &c_.width, "width of the residual stream", check_size},
        {"heads", &c_.heads, "attention heads", check_size},
        {"query_rank", &c_.query_rank, "size of the latent vector that queries are maps of; 0: of the stream itself",
         check_size_or_0},
        {"key_rank", &c_.key_rank, "size of the latent vector that keys and values are maps of", check_size},
        {"head_size", &c_.head_size, "elements of a head's queries and keys that positions do not turn", check_size},
        {"rotary_size", &c_.rotary_size, "elements of a head's queries and keys that positions turn; even",
         check_rotary_size},
        {"value_size", &c_.value_size, "elements of a head's values; at most head_size + rotary_size", check_size},
        {"mlp_width", &c_.hidden, "width of the MLP of the first blocks, dense_layers many", check_size},
        {"dense_layers", &c_.dense_layers, "blocks, the first ones, that have an MLP instead of experts",
         check_not_below_0},
        {"shared_experts", &c_.shared_experts, "experts that every token goes to, beside those it is routed to",
         check_size_or_0},
        {"expert_width", &c_.expert_hidden, "width of each expert", check_size},
        {"expert_scores", one_of(&c_.routing.sigmoid, kScores),
         "how experts are scored for a token: sigmoid, each by itself, or softmax, over all"},
        {"normalised_gates", &c_.routing.normalised, "the gates of a token's experts are divided by their sum"},
        {"gate_scale", &c_.routing.gate_scale, "factor of the gates", check_above_0},
        {"expert_nodes", &c_.routing.expert_nodes, "equal parts that the experts lie in, as on nodes", check_size},
        {"top_nodes", &c_.routing.top_nodes, "of these parts, how many a token's experts may be in", check_size},
        {"bias_rate", &c_.routing.bias_rate,
         "what each step adds to the bias by which an expert with fewer tokens than the mean is chosen more often, or "
         "takes from that of one with more; 0: no such bias",
         check_bias_rate},
        {"rope_theta", &c_.rope_theta, "base of the rotary angles", check_base},
        {"vocabulary", &c_.vocabulary, "number of tokens; 256 for bytes", check_size}};
    for (Key& key : mixture_keys(c_)) out.push_back(std::move(key));
    return out;
  }
  void check() const override {
    require(c_.value_size <= c_.head_size + c_.rotary_size,
            "configuration: model.value_size = {}; it must be at most model.head_size + model.rotary_size = {}",
            c_.value_size, c_.head_size + c_.rotary_size);
    require(c_.dense_layers <= c_.layers,
            "configuration: model.dense_layers = {}; it must be at most model.layers = {}", c_.dense_layers, c_.layers);
    if (c_.experts == 0) return;
    check_mixture(c_.experts, c_.top_k);
    const Routing& r = c_.routing;
    require(c_.experts % r.expert_nodes == 0,
            "configuration: model.experts = {} cannot lie in model.expert_nodes = {} equal parts; use a divisor",
            c_.experts, r.expert_nodes);
    require(r.top_nodes <= r.expert_nodes,
            "configuration: model.top_nodes = {}; it must be at most model.expert_nodes = {}", r.top_nodes,
            r.expert_nodes);
    require(c_.top_k <= c_.experts / r.expert_nodes * r.top_nodes,
            "configuration: model.top_k = {}, and model.top_nodes = {} parts have {} experts; use more of them",
            c_.top_k, r.top_nodes, c_.experts / r.expert_nodes * r.top_nodes);
  }
  std::vector<KeyWithoutEffect> without_effect() const override {
    std::vector<KeyWithoutEffect> out = without_mixture(c_.experts);
    if (c_.experts == 0) {
      for (const char* name : {"dense_layers", "shared_experts", "expert_width", "expert_scores", "normalised_gates",
                               "gate_scale", "expert_nodes", "top_nodes", "bias_rate"})
        out.push_back({name, "model.experts = 0"});
    } else if (c_.dense_layers == 0) {
      out.push_back({"mlp_width", "model.dense_layers = 0"});
    }
    return out;
  }

  std::vector<FieldNeed> needs() const override { return needs_of_text(c_.vocabulary); }
  std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const override {
    DeepSeekConfig config = c_;
    config.context = context_of(fields);
    return std::make_unique<DeepSeek>(config);
  }
  double least_parameters(std::span<const FieldSpec>) const override {
    const auto of = [](int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); };
    const double dense = static_cast<double>(dense_blocks());
    const double attention = of(c_.heads, c_.value_size) * static_cast<double>(c_.width) +
                             of(c_.heads, c_.head_size + c_.value_size) * static_cast<double>(c_.key_rank);
    const double routed = static_cast<double>(c_.experts + c_.shared_experts) * 3 * of(c_.width, c_.expert_hidden);
    return static_cast<double>(c_.layers) * attention + dense * 3 * of(c_.width, c_.hidden) +
           (static_cast<double>(c_.layers) - dense) * routed + 2 * of(c_.width, c_.vocabulary);
  }

  Cuttable cuttable() const override {
    return {.weights = true,
            .positions = true,
            .vocabulary = c_.vocabulary,
            .mixture = has_experts(),
            .heads = c_.heads,
            .heads_key = "model.heads",
            .experts = has_experts() ? c_.experts : 0,
            .expert_groups = c_.expert_groups};
  }
  // As of llama. The products that make the latent vectors are too small to be cut by columns; they are cut by
  // positions, as far as the stream is.
  std::vector<Cut> cuts(const CutRequest& request) const override {
    const std::string residual = residual_of(request);
    const std::string out = fmt::format(" -> [dp*ep, {}, -]", residual);
    const std::string columns = fmt::format("[dp*ep, {}, -], [tp, -]", request.between);
    const std::string rows = fmt::format("[dp*ep, {}, tp], [-, tp]{}", request.between, out);
    const std::string small = fmt::format("[dp*ep, {}, -], [-, -]{}", residual, out);
    const std::string attention = "model.layers.*.self_attn";
    std::vector<Cut> rules{
        {"model.embed_tokens", request.vocabulary ? fmt::format("[tp, -], [dp*ep, {}]{}", request.between, out)
                                                  : fmt::format("[-, -], [dp*ep, {}]", residual)},
        {attention + "/attention", attention_cuts(request)},
        {attention + ".kv_a_proj_with_mqa", small},
        {attention + ".kv_b_proj", columns},
        {attention + ".o_proj", rows}};
    if (c_.query_rank == 0) {
      rules.push_back({attention + ".q_proj", columns});
    } else {
      rules.push_back({attention + ".q_a_proj", small});
      rules.push_back({attention + ".q_b_proj", columns});
    }
    const auto add_mlp = [&](const std::string& scope) {
      rules.push_back({scope + ".gate_proj", columns});
      rules.push_back({scope + ".up_proj", columns});
      rules.push_back({scope + ".down_proj", rows});
    };
    if (dense_blocks() > 0) add_mlp("model.layers.*.mlp");
    if (has_experts() && c_.shared_experts > 0) add_mlp("model.layers.*.mlp.shared_experts");
    if (request.vocabulary) rules.push_back({"lm_head", columns});
    if (!has_experts()) return rules;
    for (Cut& cut : mixture_cuts("model.layers.*.moe", c_.expert_groups, true)) rules.push_back(std::move(cut));
    return rules;
  }

  std::vector<std::string> one_block_of_each_kind() const override {
    if (!has_experts() || dense_blocks() == 0) return {"layers=1"};
    return {"layers=2", "dense_layers=1"};
  }

  std::string describe() const override {
    return describe_blocks(kind(), c_.layers, c_.width, c_.heads, has_experts() ? c_.experts : 0);
  }

 private:
  int64_t dense_blocks() const { return c_.experts == 0 ? c_.layers : c_.dense_layers; }
  bool has_experts() const { return dense_blocks() < c_.layers; }

  DeepSeekConfig c_;
};

}  // namespace

std::unique_ptr<ModelSpec> deepseek_spec() {
  return std::make_unique<DeepSeekSpec>();
}

}  // namespace trireme::nn
