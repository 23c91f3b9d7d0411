#include "trireme/nn/models/t5.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/nn/biased_attention.h"
#include "trireme/nn/models/language.h"

namespace trireme::nn {
namespace {

constexpr double kT5Eps = 1e-6;

T5Config settled_t5(T5Config c) {
  require(c.layers > 0 && c.decoder_layers >= 0 && c.vocabulary > 0 && c.width > 0 && c.heads > 0 && c.hidden >= 0 &&
              c.head_size >= 0,
          "t5: layers {}, vocabulary {}, width {} and heads {} must be 1 or more, decoder_layers {}, head_size {} and "
          "the MLP's size {} 0 or more",
          c.layers, c.vocabulary, c.width, c.heads, c.decoder_layers, c.head_size, c.hidden);
  check_sizes("t5", c.layers + c.decoder_layers, {{"vocabulary", c.vocabulary}, {"width", c.width}});
  require(c.head_size > 0 || c.width % c.heads == 0,
          "t5: width {} is not divisible by {} heads; use a width that is a multiple of the heads, or give a head_size",
          c.width, c.heads);
  if (c.decoder_layers == 0) c.decoder_layers = c.layers;
  if (c.head_size == 0) c.head_size = c.width / c.heads;
  if (c.hidden == 0) c.hidden = 4 * c.width;
  return c;
}

double one_over_root(int64_t size) {
  return 1 / std::sqrt(static_cast<double>(size));
}

LinearOptions t5_dense(std::string name, double init_std) {
  return {.name = std::move(name), .bias = false, .init_std = init_std};
}

}  // namespace

T5Attention::T5Attention(const T5Config& config, std::string name, bool has_table)
    : Module(std::move(name)),
      heads_(config.heads),
      head_size_(config.head_size),
      config_(config),
      q_(config.width, heads_ * head_size_, t5_dense("q", one_over_root(config.width * head_size_))),
      k_(config.width, heads_ * head_size_, t5_dense("k", one_over_root(config.width))),
      v_(config.width, heads_ * head_size_, t5_dense("v", one_over_root(config.width))),
      o_(heads_ * head_size_, config.width, t5_dense("o", one_over_root(heads_ * head_size_))) {
  if (!has_table) return;
  relative_attention_bias_ = std::make_unique<Embedding>(
      config.distance_classes, heads_, EmbeddingOptions{"relative_attention_bias", one_over_root(config.width)});
}

Tensor T5Attention::attend(const Tensor& x, const Tensor& of, const Tensor& bias) {
  const Scope scope(*this);
  const auto by_head = [&](const Tensor& t) { return reshape(t, {t.size(0), t.size(1), heads_, head_size_}); };
  const Tensor q = by_head(q_(x)), k = by_head(k_(of)), v = by_head(v_(of));
  return o_(reshape(biased_attention(q, k, v, bias, 1), {x.size(0), x.size(1), heads_ * head_size_}));
}

Tensor T5Attention::relative_bias(const Tensor& x, bool causal) {
  const Scope scope(*this);
  const int64_t positions = x.size(1);
  const Tensor classes =
      distance_classes(x.graph(), positions, positions,
                       {.classes = config_.distance_classes, .most = config_.most_distance, .both_ways = !causal});
  const Tensor bias = transpose(cast((*relative_attention_bias_)(classes), DType::kF32), {2, 0, 1});
  return causal ? add(bias, causal_bias(x.graph(), positions, positions)) : bias;
}

T5Mlp::T5Mlp(const T5Config& config)
    : Module("DenseReluDense"),
      gated_(config.gated),
      wi_(config.width, config.hidden, t5_dense("wi", one_over_root(config.width))),
      wi_0_(config.width, config.hidden, t5_dense("wi_0", one_over_root(config.width))),
      wi_1_(config.width, config.hidden, t5_dense("wi_1", one_over_root(config.width))),
      wo_(config.hidden, config.width, t5_dense("wo", one_over_root(config.hidden))),
      drop_(config.dropout, "dropout") {}

Tensor T5Mlp::forward(const Tensor& x) {
  const Tensor h = gated_ ? mul(gelu(wi_0_(x), true), wi_1_(x)) : relu(wi_(x));
  return wo_(drop_(h));
}

// In a decoder's block attention to what the encoder made is its second layer.
T5Block::T5Block(const T5Config& config, int64_t number, bool decodes)
    : Module(fmt::format("block.{}", number)),
      decodes_(decodes),
      self_("layer.0"),
      cross_("layer.1"),
      mlp_(decodes ? "layer.2" : "layer.1"),
      self_attention_(config, "SelfAttention", number == 0),
      cross_attention_(config, "EncDecAttention", false),
      dense_(config),
      self_norm_(config.width, "layer_norm", kT5Eps),
      cross_norm_(config.width, "layer_norm", kT5Eps),
      mlp_norm_(config.width, "layer_norm", kT5Eps),
      drop_(config.dropout, "dropout") {}

Tensor T5Block::relative_bias(const Tensor& x) {
  const Scope block(*this);
  const Scope scope(self_);
  return self_attention_.relative_bias(x, decodes_);
}

Tensor T5Block::run(const Tensor& x, const Tensor& bias, const Tensor& encoded) {
  const Scope block(*this);
  Tensor out = x;
  {
    const Scope scope(self_);
    const Tensor h = self_norm_(out);
    out = add(out, drop_(self_attention_.attend(h, h, bias)));
  }
  if (decodes_) {
    const Scope scope(cross_);
    const Tensor none = full(x.graph(), {DType::kF32, {1, 1}}, 0);
    out = add(out, drop_(cross_attention_.attend(cross_norm_(out), encoded, none)));
  }
  const Scope scope(mlp_);
  return add(out, drop_(dense_(mlp_norm_(out))));
}

T5Stack::T5Stack(const T5Config& config, bool decodes)
    : Module(decodes ? "decoder" : "encoder"),
      final_layer_norm_(config.width, "final_layer_norm", kT5Eps),
      drop_(config.dropout, "dropout"),
      last_drop_(config.dropout, "dropout_1") {
  const int64_t count = decodes ? config.decoder_layers : config.layers;
  for (int64_t i = 0; i < count; ++i) blocks_.push_back(std::make_unique<T5Block>(config, i, decodes));
}

Tensor T5Stack::run(const Tensor& embedded, const Tensor& encoded) {
  const Scope scope(*this);
  Tensor x = drop_(embedded);
  const Tensor bias = blocks_.front()->relative_bias(x);
  for (const auto& block : blocks_) x = block->run(x, bias, encoded);
  return last_drop_(final_layer_norm_(x));
}

T5::T5(const T5Config& config)
    : config_(settled_t5(config)),
      shared_(config_.vocabulary, config_.width, {"shared", 1}),
      encoder_(config_, false),
      decoder_(config_, true),
      lm_head_(config_.width, config_.vocabulary, t5_dense("lm_head", one_over_root(config_.width))) {}

Fields T5::forward_batch(const Fields& batch) {
  const Tensor& tokens = batch["tokens"];
  const Tensor& decoder_tokens = batch["decoder_tokens"];
  require(tokens.rank() == 2 && decoder_tokens.rank() == 2 && tokens.size(0) == decoder_tokens.size(0),
          "t5: tokens are {} and decoder_tokens {}; they must be [batch, positions] each", to_string(tokens.type()),
          to_string(decoder_tokens.type()));
  const Tensor encoded = encoder_.run(shared_(tokens), {});
  const Tensor x = decoder_.run(shared_(decoder_tokens), encoded);
  if (!config_.tied) return {{kPrediction, lm_head_(x)}};
  const Tensor small = scale(x, one_over_root(config_.width));
  return {{kPrediction, matmul(small, Trace::current().in_compute_type(shared_.weight()), false, true)}};
}

namespace {

class T5Spec final : public ModelSpecOf<T5Spec> {
 public:
  std::string_view kind() const override { return "t5"; }
  std::string_view doc() const override {
    return "T5, from tokens to tokens: an encoder, and a decoder that reads what it made";
  }
  Task task() const override { return Task::kTokens; }

  std::vector<Key> keys() override {
    return {
        {"layers", &c_.layers, "blocks", check_layers},
        {"decoder_layers", &c_.decoder_layers, "blocks of the decoder; 0: as many as of the encoder", check_size_or_0},
        {"width", &c_.width, "width of the residual stream", check_size},
        {"heads", &c_.heads, "attention heads", check_size},
        {"head_size", &c_.head_size, "size of a head; 0: the width over the heads", check_size_or_0},
        {"mlp_width", &c_.hidden, "width of the MLP; 0: four times the width", check_size_or_0},
        {"gated", &c_.gated, "the MLP of version 1.1: GELU of one map times another"},
        {"tied", &c_.tied, "the output head shares the embedding's table"},
        {"distance_classes", &c_.distance_classes, "classes of distances between positions, each with a bias a head",
         check_size},
        {"most_distance", &c_.most_distance, "distance from which on all are of one class", check_size},
        {"vocabulary", &c_.vocabulary, "number of tokens; 384 for bytes, start, end and the sentinels of spans",
         check_size},
        {.name = "dropout",
         .target = &c_.dropout,
         .doc = "probability, at least 0 and below 1",
         .check = check_share,
         .on_resume = OnResume::kTold}};
  }
  void check() const override {
    if (c_.head_size == 0) check_heads_divide(c_.width, c_.heads);
    require(c_.decoder_layers <= kMostLayers, "configuration: model.decoder_layers = {}; it must be at most {}",
            c_.decoder_layers, +kMostLayers);
    require(
        c_.distance_classes >= 4 && c_.distance_classes % 2 == 0 && c_.most_distance > c_.distance_classes / 2,
        "configuration: model.distance_classes = {} with model.most_distance = {}; use an even number of classes, 4 "
        "or more, and a distance above half as many",
        c_.distance_classes, c_.most_distance);
  }

  std::vector<FieldNeed> needs() const override {
    const FieldNeed tokens{"tokens", DType::kI32, {0}, c_.vocabulary};
    FieldNeed decoder = tokens, targets = tokens;
    decoder.name = "decoder_tokens";
    targets.name = "targets";
    return {tokens, decoder, targets};
  }
  std::unique_ptr<Module> make(std::span<const FieldSpec>) const override { return std::make_unique<T5>(c_); }
  double least_parameters(std::span<const FieldSpec>) const override {
    const auto width = static_cast<double>(c_.width);
    const double heads = c_.head_size == 0 ? width : static_cast<double>(c_.heads * c_.head_size);
    const double hidden = c_.hidden == 0 ? 4 * width : static_cast<double>(c_.hidden);
    const double mlp = (c_.gated ? 3 : 2) * hidden;
    const auto layers = static_cast<double>(c_.layers);
    const double decoder = c_.decoder_layers == 0 ? layers : static_cast<double>(c_.decoder_layers);
    return width * (layers * (4 * heads + mlp) + decoder * (8 * heads + mlp)) +
           width * static_cast<double>(c_.vocabulary) * (c_.tied ? 1 : 2);
  }

  Cuttable cuttable() const override {
    return {.weights = true, .vocabulary = c_.vocabulary, .heads = c_.heads, .heads_key = "model.heads"};
  }
  std::vector<Cut> cuts(const CutRequest& request) const override {
    std::vector<Cut> rules;
    rules.push_back({"shared", request.vocabulary ? "[tp, -], [dp*ep, -] -> [dp*ep, -, -]" : "[-, -], [dp*ep, -]"});
    for (const char* attention : {"encoder.block.*.layer.0.SelfAttention", "decoder.block.*.layer.0.SelfAttention",
                                  "decoder.block.*.layer.1.EncDecAttention"}) {
      const std::string scope = fmt::format("{}.", attention);
      for (Cut& cut : columns_and_rows(scope, {"q", "k", "v"}, {"o"})) rules.push_back(std::move(cut));
      for (const char* product : {"matmul", "matmul#1"})
        rules.push_back({fmt::format("{}/{}", attention, product), kCutsOfScores});
    }
    for (const char* mlp : {"encoder.block.*.layer.1.DenseReluDense.", "decoder.block.*.layer.2.DenseReluDense."}) {
      const std::vector<std::string> in =
          c_.gated ? std::vector<std::string>{"wi_0", "wi_1"} : std::vector<std::string>{"wi"};
      for (Cut& cut : columns_and_rows(mlp, in, {"wo"})) rules.push_back(std::move(cut));
    }
    rules.push_back({"*.relative_attention_bias", "[-, tp], [-, -]"});
    if (request.vocabulary) rules.push_back({c_.tied ? "/matmul" : "lm_head", "[dp*ep, -, -], [tp, -]"});
    return rules;
  }

  std::string describe() const override {
    const int64_t decoder = c_.decoder_layers == 0 ? c_.layers : c_.decoder_layers;
    return fmt::format("t5, {} + {} layers of width {}, {} head{}", c_.layers, decoder, c_.width, c_.heads,
                       c_.heads == 1 ? "" : "s");
  }

 private:
  T5Config c_;
};

}  // namespace

std::unique_ptr<ModelSpec> t5_spec() {
  return std::make_unique<T5Spec>();
}

}  // namespace trireme::nn
