#include "trireme/nn/models/bert.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/nn/biased_attention.h"
#include "trireme/nn/models/language.h"
#include "trireme/ops/loss/counted_loss.h"

namespace trireme::nn {
namespace {

constexpr double kBertInitStd = 0.02;
constexpr double kBertEps = 1e-12;
constexpr int64_t kSegments = 2;  // that the table of token types has

LinearOptions bert_dense(std::string name) {
  return {.name = std::move(name), .init_std = kBertInitStd};
}

BertConfig settled_bert(BertConfig config) {
  require(config.layers > 0 && config.vocabulary > 0 && config.context > 0 && config.heads > 0,
          "bert: layers {}, vocabulary {}, context {} and heads {} must be 1 or more", config.layers, config.vocabulary,
          config.context, config.heads);
  check_sizes("bert", config.layers,
              {{"vocabulary", config.vocabulary}, {"context", config.context}, {"width", config.width}});
  require(config.width > 0 && config.width % config.heads == 0,
          "bert: width {} is not divisible by {} heads; use a width that is a multiple of the heads", config.width,
          config.heads);
  require(config.hidden >= 0, "bert: the MLP's size is {}; it must be 1 or more, or 0 for four times the width",
          config.hidden);
  if (config.hidden == 0) config.hidden = 4 * config.width;
  return config;
}

// The bias of each token's logit.
class LogitBias : public Module {
 public:
  explicit LogitBias(int64_t vocabulary) : Module("predictions"), vocabulary_(vocabulary) {}
  Tensor forward(const Tensor& logits) override {
    return add(logits, operand("bias", {vocabulary_}, {Init::Kind::kConstant, 0, 0}));
  }

 private:
  int64_t vocabulary_;
};

}  // namespace

BertBlock::BertBlock(const BertConfig& config, std::string name)
    : Module(std::move(name)),
      width_(config.width),
      heads_(config.heads),
      attention_("attention"),
      self_("self"),
      self_output_("output"),
      intermediate_("intermediate"),
      output_("output"),
      query_(config.width, config.width, bert_dense("query")),
      key_(config.width, config.width, bert_dense("key")),
      value_(config.width, config.width, bert_dense("value")),
      attention_dense_(config.width, config.width, bert_dense("dense")),
      intermediate_dense_(config.width, config.hidden, bert_dense("dense")),
      output_dense_(config.hidden, config.width, bert_dense("dense")),
      attention_norm_(config.width, "LayerNorm", kBertEps),
      output_norm_(config.width, "LayerNorm", kBertEps),
      attention_drop_(config.dropout, "dropout"),
      output_drop_(config.dropout, "dropout") {}

Tensor BertBlock::attend(const Tensor& x, const Tensor& bias) {
  const Scope scope(attention_);
  Tensor mixed;
  {
    const Scope self(self_);
    const auto by_head = [&](const Tensor& t) { return reshape(t, {x.size(0), x.size(1), heads_, width_ / heads_}); };
    const Tensor q = by_head(query_(x));
    const Tensor k = by_head(key_(x));
    const Tensor v = by_head(value_(x));
    const double scale = 1 / std::sqrt(static_cast<double>(width_ / heads_));
    mixed = reshape(bias ? biased_attention(q, k, v, bias, scale) : attention(q, k, v), x.shape());
  }
  const Scope output(self_output_);
  return attention_norm_(add(x, attention_drop_(attention_dense_(mixed))));
}

Tensor BertBlock::run(const Tensor& x, const Tensor& bias) {
  const Scope block(*this);
  const Tensor a = attend(x, bias);
  Tensor h;
  {
    const Scope scope(intermediate_);
    h = gelu(intermediate_dense_(a));
  }
  const Scope scope(output_);
  return output_norm_(add(a, output_drop_(output_dense_(h))));
}

BertBody::BertBody(const BertConfig& config)
    : Module("bert"),
      context_(config.context),
      embeddings_("embeddings"),
      encoder_("encoder"),
      pooler_("pooler"),
      word_embeddings_(config.vocabulary, config.width, {"word_embeddings", kBertInitStd}),
      position_embeddings_(config.context, config.width, {"position_embeddings", kBertInitStd}),
      token_type_embeddings_(kSegments, config.width, {"token_type_embeddings", kBertInitStd}),
      embeddings_norm_(config.width, "LayerNorm", kBertEps),
      drop_(config.dropout, "dropout"),
      pooler_dense_(config.width, config.width, bert_dense("dense")) {
  for (int64_t i = 0; i < config.layers; ++i)
    blocks_.push_back(std::make_unique<BertBlock>(config, fmt::format("layer.{}", i)));
}

Tensor BertBody::embed(const Tensor& tokens, const Tensor& segments) {
  const Scope scope(embeddings_);
  Graph& graph = tokens.graph();
  const Tensor words = word_embeddings_(tokens);
  const Tensor places = position_embeddings_(iota(graph, {DType::kI32, {tokens.size(1)}}, 0));
  const Tensor segment = token_type_embeddings_(segments ? segments : iota(graph, {DType::kI32, {1}}, 0));
  return drop_(embeddings_norm_(add(add(words, places), segment)));
}

Tensor BertBody::run(const Tensor& tokens, const Tensor& segments, const Tensor& bias) {
  require(tokens.rank() == 2 && tokens.size(1) <= context_,
          "bert: tokens are {}; they must be [batch, up to {} positions]", to_string(tokens.type()), context_);
  const Scope scope(*this);
  Tensor x = embed(tokens, segments);
  const Scope encoder(encoder_);
  for (const auto& block : blocks_) x = block->run(x, bias);
  return x;
}

Tensor BertBody::pool(const Tensor& x) {
  const Scope scope(*this);
  const Scope pooler(pooler_);
  return tanh(pooler_dense_(reshape(slice(x, 1, 0, 1), {x.size(0), x.size(2)})));
}

Bert::Bert(const BertConfig& config)
    : config_(settled_bert(config)),
      body_(config_),
      cls_("cls"),
      transform_("predictions.transform"),
      bias_(std::make_unique<LogitBias>(config_.vocabulary)),
      transform_dense_(config_.width, config_.width, bert_dense("dense")),
      transform_norm_(config_.width, "LayerNorm", kBertEps) {}

Tensor Bert::predict(const Tensor& x) {
  const Scope scope(cls_);
  Tensor h;
  {
    const Scope transform(transform_);
    h = transform_norm_(gelu(transform_dense_(x)));
  }
  return (*bias_)(matmul(h, Trace::current().in_compute_type(body_.table()), false, true));
}

Tensor Bert::forward(const Tensor& tokens) {
  return predict(body_.run(tokens, {}, {}));
}

BertClassifier::BertClassifier(const BertConfig& config, int64_t classes)
    : body_(settled_bert(config)),
      drop_(config.dropout, "dropout"),
      classifier_(config.width, classes, bert_dense("classifier")) {}

Fields BertClassifier::forward_batch(const Fields& batch) {
  const Tensor& mask = batch["mask"];
  const Tensor unseen = scale(add_scalar(cast(mask, DType::kF32), -1), -kUnseenScore);
  const Tensor bias = reshape(unseen, {mask.size(0), 1, 1, mask.size(1)});
  const Tensor x = body_.run(batch["tokens"], batch["segments"], bias);
  return {{kPrediction, classifier_(drop_(body_.pool(x)))}};
}

namespace {

// What the two kinds have in common.
template <class Self>
class BertSpecOf : public ModelSpecOf<Self> {
 public:
  void check() const override { check_heads_divide(c_.width, c_.heads); }
  double least_parameters(std::span<const FieldSpec> fields) const override {
    const auto width = static_cast<double>(c_.width);
    const double hidden = c_.hidden == 0 ? 4 * width : static_cast<double>(c_.hidden);
    return static_cast<double>(c_.layers) * width * (4 * width + 2 * hidden) +
           width * static_cast<double>(c_.vocabulary + context_of(fields));
  }

  Cuttable cuttable() const override { return {.weights = true, .heads = c_.heads, .heads_key = "model.heads"}; }
  std::string describe() const override { return describe_blocks(this->kind(), c_.layers, c_.width, c_.heads, 0); }

 protected:
  std::vector<Key> keys_of_body(const char* vocabulary) {
    return {{"layers", &c_.layers, "blocks", check_layers},
            {"width", &c_.width, "width of the residual stream", check_size},
            {"heads", &c_.heads, "attention heads; they must divide the width", check_size},
            {"mlp_width", &c_.hidden, "width of the MLP; 0: four times the width", check_size_or_0},
            {"vocabulary", &c_.vocabulary, vocabulary, check_size},
            {.name = "dropout",
             .target = &c_.dropout,
             .doc = "probability, at least 0 and below 1",
             .check = check_share,
             .on_resume = OnResume::kTold}};
  }
  BertConfig config_for(std::span<const FieldSpec> fields) const {
    BertConfig config = c_;
    config.context = context_of(fields);
    return config;
  }
  static std::vector<Cut> cuts_of_body() {
    std::vector<Cut> rules{{"bert.embeddings.word_embeddings", "[-, -], [dp*ep, -]"}};
    for (Cut& cut : columns_and_rows(
             kBertBlock, {"attention.self.query", "attention.self.key", "attention.self.value", "intermediate.dense"},
             {"attention.output.dense", "output.dense"}))
      rules.push_back(std::move(cut));
    return rules;
  }

  static constexpr const char* kBertBlock = "bert.encoder.layer.*.";
  BertConfig c_;
};

class BertSpec final : public BertSpecOf<BertSpec> {
 public:
  std::string_view kind() const override { return "bert"; }
  std::string_view doc() const override { return "BERT's masked language model, on tokens of which some are hidden"; }
  Task task() const override { return Task::kHiddenTokens; }

  std::vector<Key> keys() override { return keys_of_body("number of tokens; 257 for bytes and the mask token"); }
  std::vector<FieldNeed> needs() const override { return needs_of_text(c_.vocabulary); }
  std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const override {
    return std::make_unique<Bert>(config_for(fields));
  }
  // Of the hidden tokens alone.
  CountedLoss loss(const Fields& predicted, const Fields& batch, const LossOptions& options) const override {
    return cross_entropy_counted(predicted[kPrediction], batch.back().second,
                                 {.label_smoothing = options.label_smoothing});
  }
  std::vector<Cut> cuts(const CutRequest& request) const override {
    std::vector<Cut> rules = cuts_of_body();
    rules.push_back({std::string(kBertBlock) + "attention.self/attention", attention_cuts(request)});
    return rules;
  }
};

class BertClassifierSpec final : public BertSpecOf<BertClassifierSpec> {
 public:
  std::string_view kind() const override { return "bert_classifier"; }
  std::string_view doc() const override { return "BERT, on pairs of texts, for the class of each"; }
  Task task() const override { return Task::kClasses; }

  std::vector<Key> keys() override {
    std::vector<Key> out = keys_of_body("number of tokens; 259 for bytes, begin, end and padding");
    out.push_back({"classes", &classes_, "number of classes", check_size});
    return out;
  }
  std::vector<FieldNeed> needs() const override {
    const auto row = [](const char* name, int64_t below) { return FieldNeed{name, DType::kI32, {0}, below}; };
    return {row("tokens", c_.vocabulary),
            row("segments", kSegments),
            row("mask", 2),
            {.name = "label", .dtype = DType::kI32, .below = classes_}};
  }
  std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const override {
    return std::make_unique<BertClassifier>(config_for(fields), classes_);
  }
  std::vector<Cut> cuts(const CutRequest&) const override {
    std::vector<Cut> rules = cuts_of_body();
    for (const char* product : {"matmul", "matmul#1"})
      rules.push_back({std::string(kBertBlock) + "attention.self/" + product, kCutsOfScores});
    return rules;
  }

 private:
  int64_t classes_ = 2;
};

}  // namespace

std::unique_ptr<ModelSpec> bert_spec() {
  return std::make_unique<BertSpec>();
}

std::unique_ptr<ModelSpec> bert_classifier_spec() {
  return std::make_unique<BertClassifierSpec>();
}

}  // namespace trireme::nn
