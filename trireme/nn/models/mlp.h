// Small image classifiers: a multi-layer perceptron with ReLU, and LeNet-5 (LeCun et al., 1998; with ReLU and max
// pooling).
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"

namespace trireme::nn {

// Sizes in, hidden..., out. Every dimension of x but the first is flattened.
class Mlp : public Module {
 public:
  explicit Mlp(const std::vector<int64_t>& sizes);
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::unique_ptr<Linear>> layers_;
};

// x [b,28,28,1] -> logits [b,classes].
class LeNet : public Module {
 public:
  explicit LeNet(int64_t classes = 10);
  Tensor forward(const Tensor& x) override;

 private:
  Conv2d conv1_, conv2_;
  Linear fc1_, fc2_, fc3_;
};

}  // namespace trireme::nn
