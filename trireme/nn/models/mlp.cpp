#include "trireme/nn/models/mlp.h"

#include "trireme/base/error.h"
#include "trireme/nn/limits.h"

namespace trireme::nn {
namespace {

Tensor flatten(const Tensor& x) {
  return x.rank() == 2 ? x : reshape(x, std::vector<int64_t>{x.size(0), -1});
}

}  // namespace

Mlp::Mlp(const std::vector<int64_t>& sizes) {
  require(sizes.size() >= 2, "mlp: {} sizes are given; it needs at least an input and an output size", sizes.size());
  for (const int64_t size : sizes) check_sizes("mlp", static_cast<int64_t>(sizes.size()), {{"layer's size", size}});
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    layers_.push_back(
        std::make_unique<Linear>(sizes[i], sizes[i + 1], LinearOptions{.name = fmt::format("layers.{}", i)}));
  }
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = flatten(x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    h = (*layers_[i])(h);
    if (i + 1 < layers_.size()) h = relu(h);
  }
  return h;
}

LeNet::LeNet(int64_t classes)
    : conv1_(1, 6, 5, {.name = "conv1", .padding = 2}),
      conv2_(6, 16, 5, {.name = "conv2"}),
      fc1_(16 * 5 * 5, 120, {.name = "fc1"}),
      fc2_(120, 84, {.name = "fc2"}),
      fc3_(84, classes, {.name = "fc3"}) {}

Tensor LeNet::forward(const Tensor& x) {
  require(x.rank() == 4 && x.size(1) == 28 && x.size(2) == 28 && x.size(3) == 1,
          "lenet: images are {}; they must be [batch,28,28,1]", to_string(x.type()));
  const PoolOptions halve{.kernel = {2, 2}, .stride = {2, 2}};
  Tensor h = max_pool2d(relu(conv1_(x)), halve);
  h = max_pool2d(relu(conv2_(h)), halve);
  h = relu(fc1_(flatten(h)));
  return fc3_(relu(fc2_(h)));
}

}  // namespace trireme::nn
