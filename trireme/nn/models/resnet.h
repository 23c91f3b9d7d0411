// ResNet (He et al., 2015) and Wide ResNet (Zagoruyko and Komodakis, 2016) with bottleneck blocks, version 1.5: a
// block's stride is in its 3x3 convolution. Names of parameters and buffers are torchvision's ("layer1.0.conv1.weight",
// "bn1.running_mean"); convolutions are stored [out,kh,kw,in].
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"

namespace trireme::nn {

struct ResNetConfig {
  std::vector<int64_t> blocks = {3, 4, 6, 3};  // of each stage; the first keeps the size, the others halve it
  int64_t width = 64;                          // channels of the stem, and of the first stage's inner convolutions
  int64_t channels = 3;                        // of an image
  int64_t classes = 1000;
  int64_t inner_factor = 1;  // times the channels of the inner convolutions: of 2 Wide ResNet-50-2 and -101-2
};

// The blocks of ResNet-50, -101 and -152, which have that many layers with weights. Throws kInvalidArgument for other
// depths.
std::vector<int64_t> resnet_blocks(int64_t depth);

// x [b,h,w,in] -> [b,h/stride,w/stride,4 width]: 1x1, 3x3 and 1x1 convolutions, each with a batch norm, beside x or a
// 1x1 convolution of it. The results of the first two have `inner` channels.
class Bottleneck : public Module {
 public:
  Bottleneck(int64_t in, int64_t width, int64_t inner, int64_t stride, std::string name);
  Tensor forward(const Tensor& x) override;
  static constexpr int64_t kExpansion = 4;

 private:
  bool projects_;
  Conv2d conv1_, conv2_, conv3_;
  BatchNorm bn1_, bn2_, bn3_;
  Group downsample_;
  Conv2d projection_;
  BatchNorm projection_bn_;
};

// Images [b,h,w,channels] -> logits [b,classes].
class ResNet : public Module {
 public:
  explicit ResNet(const ResNetConfig& config);
  Tensor forward(const Tensor& x) override;
  const ResNetConfig& config() const { return config_; }

 private:
  ResNetConfig config_;
  Conv2d conv1_;
  BatchNorm bn1_;
  std::vector<std::unique_ptr<Group>> layers_;
  std::vector<std::vector<std::unique_ptr<Bottleneck>>> blocks_;
  Linear fc_;
};

}  // namespace trireme::nn
