#include "trireme/nn/models/vit.h"

#include "trireme/base/error.h"
#include "trireme/nn/models/language.h"
#include "trireme/nn/models/mlp.h"

namespace trireme::nn {
namespace {

constexpr double kVitInitStd = 0.02;
constexpr double kVitEps = 1e-12;

LinearOptions dense(std::string name) {
  return {.name = std::move(name), .init_std = kVitInitStd};
}

VitConfig settled(VitConfig config) {
  check_sizes("vit", config.layers,
              {{"width", config.width},
               {"heads", config.heads},
               {"patch", config.patch},
               {"channels", config.channels},
               {"classes", config.classes}});
  require(config.width % config.heads == 0,
          "vit: width {} is not divisible by {} heads; use a width that is a multiple of the heads", config.width,
          config.heads);
  require(config.height > 0 && config.width_of_image > 0 && config.height % config.patch == 0 &&
              config.width_of_image % config.patch == 0,
          "vit: images of {} x {} cannot be cut into patches of {} x {}; use a patch that divides both", config.height,
          config.width_of_image, config.patch, config.patch);
  require(config.hidden >= 0, "vit: the MLP's size is {}; it must be 1 or more, or 0 for four times the width",
          config.hidden);
  if (config.hidden == 0) config.hidden = 4 * config.width;
  return config;
}

}  // namespace

VitBlock::VitBlock(const VitConfig& config, std::string name)
    : Module(std::move(name)),
      width_(config.width),
      heads_(config.heads),
      layernorm_before_(config.width, "layernorm_before", kVitEps),
      layernorm_after_(config.width, "layernorm_after", kVitEps),
      attention_("attention"),
      self_("attention"),
      self_output_("output"),
      intermediate_("intermediate"),
      output_("output"),
      query_(config.width, config.width, dense("query")),
      key_(config.width, config.width, dense("key")),
      value_(config.width, config.width, dense("value")),
      attention_dense_(config.width, config.width, dense("dense")),
      intermediate_dense_(config.width, config.hidden, dense("dense")),
      output_dense_(config.hidden, config.width, dense("dense")),
      attention_drop_(config.dropout, "dropout"),
      output_drop_(config.dropout, "dropout") {}

Tensor VitBlock::attend(const Tensor& x) {
  const Scope scope(attention_);
  Tensor mixed;
  {
    const Scope self(self_);
    const auto by_head = [&](const Tensor& t) { return reshape(t, {x.size(0), x.size(1), heads_, width_ / heads_}); };
    const Tensor q = by_head(query_(x));
    const Tensor k = by_head(key_(x));
    const Tensor v = by_head(value_(x));
    mixed = reshape(attention(q, k, v), x.shape());
  }
  const Scope output(self_output_);
  return attention_drop_(attention_dense_(mixed));
}

Tensor VitBlock::forward(const Tensor& x) {
  const Tensor a = add(x, attend(layernorm_before_(x)));
  Tensor h = layernorm_after_(a);
  {
    const Scope scope(intermediate_);
    h = gelu(intermediate_dense_(h));
  }
  const Scope scope(output_);
  return add(a, output_drop_(output_dense_(h)));
}

// Patches as positions, after that of the class, each with an embedding of its place.
class Vit::Embeddings : public Module {
 public:
  explicit Embeddings(const VitConfig& config)
      : Module("embeddings"),
        width_(config.width),
        patch_embeddings_("patch_embeddings"),
        projection_(config.channels, config.width, config.patch,
                    {.name = "projection", .stride = config.patch, .init_std = kVitInitStd}),
        drop_(config.dropout, "dropout") {}

  Tensor forward(const Tensor& images) override {
    const Init normal{Init::Kind::kNormal, 0, kVitInitStd};
    const Tensor of_class = operand("cls_token", {1, 1, width_}, normal);
    Tensor patches;
    {
      const Scope scope(patch_embeddings_);
      patches = projection_(images);
    }
    const int64_t batch = images.size(0), count = patches.size(1) * patches.size(2);
    patches = reshape(patches, {batch, count, width_});
    const Tensor all = concat({broadcast_to(of_class, {batch, 1, width_}), patches}, 1);
    const Tensor places = operand("position_embeddings", {1, count + 1, width_}, normal);
    return drop_(add(all, places));
  }

 private:
  int64_t width_;
  Group patch_embeddings_;
  Conv2d projection_;
  Dropout drop_;
};

Vit::Vit(const VitConfig& config)
    : config_(settled(config)),
      vit_("vit"),
      encoder_("encoder"),
      embeddings_(std::make_unique<Embeddings>(config_)),
      layernorm_(config_.width, "layernorm", kVitEps),
      classifier_(config_.width, config_.classes, dense("classifier")) {
  for (int64_t i = 0; i < config_.layers; ++i)
    blocks_.push_back(std::make_unique<VitBlock>(config_, fmt::format("layer.{}", i)));
}

Tensor Vit::forward(const Tensor& images) {
  require(images.rank() == 4 && images.size(1) == config_.height && images.size(2) == config_.width_of_image &&
              images.size(3) == config_.channels,
          "vit: images are {}; they must be [batch,{},{},{}]", to_string(images.type()), config_.height,
          config_.width_of_image, config_.channels);
  Tensor x;
  {
    const Scope scope(vit_);
    x = (*embeddings_)(images);
    {
      const Scope encoder(encoder_);
      for (const auto& block : blocks_) x = (*block)(x);
    }
    x = layernorm_(x);
  }
  return classifier_(reshape(slice(x, 1, 0, 1), {x.size(0), config_.width}));
}

namespace {

class VitSpec final : public ModelSpecOf<VitSpec> {
 public:
  std::string_view kind() const override { return "vit"; }
  std::string_view doc() const override { return "vision transformer, on images"; }
  Task task() const override { return Task::kClasses; }

  std::vector<Key> keys() override {
    return {{"layers", &c_.layers, "blocks", check_layers},
            {"width", &c_.width, "width of the residual stream", check_size},
            {"heads", &c_.heads, "attention heads; they must divide the width", check_size},
            {"mlp_width", &c_.hidden, "width of the MLP; 0: four times the width", check_size_or_0},
            {"patch", &c_.patch, "height and width of the patches that an image is cut into, in pixels", check_size},
            {"classes", &c_.classes, "number of classes", check_size},
            {.name = "dropout",
             .target = &c_.dropout,
             .doc = "probability, at least 0 and below 1",
             .check = check_share,
             .on_resume = OnResume::kTold}};
  }
  void check() const override { check_heads_divide(c_.width, c_.heads); }

  std::vector<FieldNeed> needs() const override {
    return needs_of_classifier({.name = "image", .sizes = {0, 0, 0}}, c_.classes);
  }
  std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const override {
    VitConfig config = c_;
    const Shape& image = fields[0].sample.shape;
    config.height = image[0];
    config.width_of_image = image[1];
    config.channels = image[2];
    return std::make_unique<Vit>(config);
  }
  double least_parameters(std::span<const FieldSpec>) const override {
    const auto width = static_cast<double>(c_.width);
    const double hidden = c_.hidden == 0 ? 4 * width : static_cast<double>(c_.hidden);
    return static_cast<double>(c_.layers) * width * (4 * width + 2 * hidden);
  }

  Cuttable cuttable() const override { return {.weights = true, .heads = c_.heads, .heads_key = "model.heads"}; }
  std::vector<Cut> cuts(const CutRequest& request) const override {
    const std::string block = "vit.encoder.layer.*.";
    std::vector<Cut> rules{{block + "attention.attention/attention", attention_cuts(request)}};
    for (Cut& cut : columns_and_rows(block,
                                     {"attention.attention.query", "attention.attention.key",
                                      "attention.attention.value", "intermediate.dense"},
                                     {"attention.output.dense", "output.dense"}))
      rules.push_back(std::move(cut));
    return rules;
  }

  std::string describe() const override {
    return fmt::format("{}, patches of {} x {}", describe_blocks(kind(), c_.layers, c_.width, c_.heads, 0), c_.patch,
                       c_.patch);
  }

 private:
  VitConfig c_{.patch = 4, .layers = 4, .width = 256, .heads = 4, .classes = 10};
};

}  // namespace

std::unique_ptr<ModelSpec> vit_spec() {
  return std::make_unique<VitSpec>();
}

}  // namespace trireme::nn
