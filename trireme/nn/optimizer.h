// Optimizers as graph builders: each adds the update of one parameter to the training step, with its state as inputs
// that the update replaces. Options and arithmetic are PyTorch's (LAMB: You et al., 2020).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "trireme/ir/tensor.h"

namespace trireme {

struct Sgd {
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
struct Adam {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};
struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};
struct Lamb {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
};
using Optimizer = std::variant<Sgd, Adam, AdamW, Lamb>;

double learning_rate(const Optimizer& optimizer);

// Throws kInvalidArgument naming the number with which no step could be finite: rates and decays that f32 does not
// hold, shares that are 1 there.
void check(const Optimizer& optimizer);

namespace nn {

struct UpdateOperands {
  std::string name;  // of the parameter
  Tensor param, grad;
  Tensor lr;     // f32[]
  Tensor step;   // i64[], from 1
  Tensor scale;  // f32[], multiplies the gradient
};
// Adds the state inputs ("<name>.m", "<name>.v", "<name>.velocity"), the update, and the outputs that replace
// parameter and state; the graph knows of it by Graph::updates. Its nodes are in the scope "update/<name>".
void add_update(const Optimizer& optimizer, const UpdateOperands& in);

}  // namespace nn
}  // namespace trireme
