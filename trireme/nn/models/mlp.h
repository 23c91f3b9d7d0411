// Small image classifiers: a multi-layer perceptron with ReLU, and LeNet-5 (LeCun et al., 1998; with ReLU and max
// pooling).
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"
#include "trireme/nn/model_spec.h"

namespace trireme::nn {

// Sizes in, hidden..., out. Every dimension of x but the first is flattened.
class Mlp : public Module {
 public:
  explicit Mlp(const std::vector<int64_t>& sizes, std::string name = "");
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

// Cuts of such layers, "<scope>0", "<scope>1" ...: every other one by columns and by rows. [out, in] is cut on out,
// then on in.
std::vector<Cut> mlp_cuts(const std::string& scope, size_t layers);

// The input, and the label of one of so many classes.
std::vector<FieldNeed> needs_of_classifier(FieldNeed input, int64_t classes);

}  // namespace trireme::nn
