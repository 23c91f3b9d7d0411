// Optimizers as graph builders: each adds the update of one parameter to the training step, with its state as inputs
// that the update replaces. Options and arithmetic are PyTorch's (LAMB: You et al., 2020).
#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include "trireme/nn/optimizer_spec.h"

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
// Adam, but of a table that is looked up only the rows that the batch has looked up change, with their means.
struct LazyAdam {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};
struct Lamb {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
};

// Each stands in the file of its optimizer.
std::unique_ptr<nn::OptimizerSpec> spec_of(const Sgd& numbers);
std::unique_ptr<nn::OptimizerSpec> spec_of(const Adam& numbers);
std::unique_ptr<nn::OptimizerSpec> spec_of(const AdamW& numbers);
std::unique_ptr<nn::OptimizerSpec> spec_of(const LazyAdam& numbers);
std::unique_ptr<nn::OptimizerSpec> spec_of(const Lamb& numbers);

// An optimizer with its numbers: one of the structs above, or a spec of a program's own.
class Optimizer {
 public:
  template <class Numbers>
  requires requires(const Numbers& numbers) {
    { spec_of(numbers) } -> std::same_as<std::unique_ptr<nn::OptimizerSpec>>;
  }
  Optimizer(const Numbers& numbers) : spec_(spec_of(numbers)) {}                  // NOLINT: Sgd{} is one
  Optimizer(std::unique_ptr<nn::OptimizerSpec> spec) : spec_(std::move(spec)) {}  // NOLINT: so is a spec

  const nn::OptimizerSpec& spec() const { return *spec_; }

 private:
  Copied<nn::OptimizerSpec> spec_;
};

double learning_rate(const Optimizer& optimizer);

// Throws kInvalidArgument naming the number with which no step could be finite: rates and decays that f32 does not
// hold, shares that are 1 there.
void check(const Optimizer& optimizer);

namespace nn {

// Adds the state inputs, the update, and the outputs that replace parameter and state; the graph knows of it by
// Graph::updates. Its nodes are in the scope "update/<name>".
void add_update(const Optimizer& optimizer, const UpdateOperands& in);

}  // namespace nn
}  // namespace trireme
