#include "trireme/nn/models/resnet.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/nn/models/mlp.h"

namespace trireme::nn {
namespace {

// Normal with variance 2 / (out k^2), which keeps the size of gradients (He et al., 2015).
Conv2dOptions without_bias(std::string name, int64_t out, int64_t kernel, int64_t stride) {
  return {.name = std::move(name),
          .stride = stride,
          .padding = kernel / 2,
          .bias = false,
          .init_std = std::sqrt(2.0 / static_cast<double>(out * kernel * kernel))};
}

// Channels that the last stage gives.
int64_t features_of(const ResNetConfig& config) {
  require(!config.blocks.empty() && config.blocks.size() <= 8, "resnet: {} stages; use 1 to 8", config.blocks.size());
  return (config.width << (config.blocks.size() - 1)) * Bottleneck::kExpansion;
}

}  // namespace

std::vector<int64_t> resnet_blocks(int64_t depth) {
  if (depth == 50) return {3, 4, 6, 3};
  if (depth == 101) return {3, 4, 23, 3};
  if (depth == 152) return {3, 8, 36, 3};
  fail(ErrorKind::kInvalidArgument, "resnet: depth {}; it must be 50, 101 or 152", depth);
}

Bottleneck::Bottleneck(int64_t in, int64_t width, int64_t inner, int64_t stride, std::string name)
    : Module(std::move(name)),
      projects_(stride != 1 || in != width * kExpansion),
      conv1_(in, inner, 1, without_bias("conv1", inner, 1, 1)),
      conv2_(inner, inner, 3, without_bias("conv2", inner, 3, stride)),
      conv3_(inner, width * kExpansion, 1, without_bias("conv3", width * kExpansion, 1, 1)),
      bn1_(inner, {.name = "bn1", .relu = true}),
      bn2_(inner, {.name = "bn2", .relu = true}),
      bn3_(width * kExpansion, {.name = "bn3", .relu = true}),
      downsample_("downsample"),
      projection_(in, width * kExpansion, 1, without_bias("0", width * kExpansion, 1, stride)),
      projection_bn_(width * kExpansion, {.name = "1"}) {}

Tensor Bottleneck::forward(const Tensor& x) {
  const Tensor h = conv3_(bn2_(conv2_(bn1_(conv1_(x)))));
  if (!projects_) return bn3_.add_to(x, h);
  Tensor beside;
  {
    const Scope scope(downsample_);
    beside = projection_bn_(projection_(x));
  }
  return bn3_.add_to(beside, h);
}

ResNet::ResNet(const ResNetConfig& config)
    : config_(config),
      conv1_(config.channels, config.width, 7, without_bias("conv1", config.width, 7, 2)),
      bn1_(config.width, {.name = "bn1", .relu = true}),
      fc_(features_of(config), config.classes, {.name = "fc"}) {
  require(config.blocks.size() <= 16, "resnet: {} stages; each doubles the channels, so there can be at most 16",
          config.blocks.size());
  for (const int64_t blocks : config.blocks)
    check_sizes("resnet", blocks,
                {{"channels", config.width << (config.blocks.size() - 1)}, {"inner_factor", config.inner_factor}});
  int64_t in = config.width;
  for (size_t stage = 0; stage < config.blocks.size(); ++stage) {
    require(config.blocks[stage] > 0, "resnet: stage {} has {} blocks; it needs 1 or more", stage + 1,
            config.blocks[stage]);
    const int64_t width = config.width << stage;
    layers_.push_back(std::make_unique<Group>(fmt::format("layer{}", stage + 1)));
    auto& blocks = blocks_.emplace_back();
    for (int64_t i = 0; i < config.blocks[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks.push_back(std::make_unique<Bottleneck>(in, width, width * config.inner_factor, stride, std::to_string(i)));
      in = width * Bottleneck::kExpansion;
    }
  }
}

Tensor ResNet::forward(const Tensor& x) {
  require(x.rank() == 4 && x.size(3) == config_.channels, "resnet: images are {}; they must be [batch,h,w,{}]",
          to_string(x.type()), config_.channels);
  Tensor h = max_pool2d(bn1_(conv1_(x)), {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  for (size_t stage = 0; stage < blocks_.size(); ++stage) {
    const Scope scope(*layers_[stage]);
    for (const auto& block : blocks_[stage]) h = (*block)(h);
  }
  return fc_(mean(h, {1, 2}));
}

namespace {

class ResNetSpec final : public ModelSpecOf<ResNetSpec> {
 public:
  std::string_view kind() const override { return "resnet"; }
  std::string_view doc() const override { return "ResNet-50, -101, -152, their wide forms or smaller, on images"; }
  Task task() const override { return Task::kClasses; }

  std::vector<Key> keys() override {
    return {
        {"classes", &c_.classes, "number of classes", check_size},
        {"depth", &depth_, "50, 101 or 152 layers"},
        {"blocks", &c_.blocks, "blocks in each stage, instead of those of model.depth", check_layers},
        {"stem", &c_.width, "channels of the first convolution", check_size},
        {"inner_factor", &c_.inner_factor,
         "times the usual channels of the convolutions inside a block: 2 for Wide ResNet-50-2 and -101-2", check_size}};
  }
  void check() const override {
    require(!c_.blocks.empty() || depth_ == 50 || depth_ == 101 || depth_ == 152,
            "configuration: model.depth = {}; it must be 50, 101 or 152, or model.blocks must say how many blocks the "
            "stages have",
            depth_);
  }
  std::vector<KeyWithoutEffect> without_effect() const override {
    if (c_.blocks.empty()) return {};
    return {{"depth", "model.blocks, which say how many there are"}};
  }

  std::vector<FieldNeed> needs() const override {
    return needs_of_classifier({.name = "image", .sizes = {0, 0, 0}}, c_.classes);
  }
  std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const override {
    ResNetConfig config = c_;
    if (config.blocks.empty()) config.blocks = resnet_blocks(depth_);
    config.channels = fields[0].sample.shape[2];
    return std::make_unique<ResNet>(config);
  }
  double least_parameters(std::span<const FieldSpec>) const override {
    auto width = static_cast<double>(c_.width);
    double out = 0;
    const auto factor = static_cast<double>(c_.inner_factor);
    for (const int64_t blocks : c_.blocks) {  // 1 x 1 from four times the width and back to it, and 3 x 3 between
      out += (8 + 9 * factor) * factor * width * width * static_cast<double>(blocks);
      width *= 2;
    }
    return out;
  }
  std::string describe() const override {
    const std::string blocks = c_.blocks.empty() ? fmt::format("resnet-{}", depth_)
                                                 : fmt::format("resnet, blocks {}", joined_text(c_.blocks, ", "));
    return c_.inner_factor == 1 ? blocks : fmt::format("wide {}, {} times inside a block", blocks, c_.inner_factor);
  }

 private:
  ResNetConfig c_{.blocks = {}, .classes = 10};
  int64_t depth_ = 50;
};

}  // namespace

std::unique_ptr<ModelSpec> resnet_spec() {
  return std::make_unique<ResNetSpec>();
}

}  // namespace trireme::nn
