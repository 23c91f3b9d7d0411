// From a model's code to the graphs of training: one training step (forward, backward, clipping, update) and one
// evaluation (forward and loss only).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/ir/tensor.h"
#include "trireme/nn/module.h"
#include "trireme/nn/optimizer.h"
#include "trireme/op/numerics.h"

namespace trireme {

// A part of the batch: shapes have the *whole* batch in front.
struct BatchField {
  std::string name;
  TensorType type;
};

// The model as a function of the first field, and its loss against the second: a scalar, or values that are averaged. The
// loss is given the prediction in f32.
using ModelFn = std::function<Tensor(const Tensor& x)>;
using LossFn = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;

struct StepOptions {
  std::string name = "model";
  uint64_t seed = 0;        // of dropout
  double gradient_scale = 1;  // multiplies every gradient, before clipping
  double clip_norm = 0;     // gradients are scaled so that their global norm is at most this; 0: not at all
  Numerics numerics = Numerics::kFast;  // kInvariant: the gradients' norm is summed exactly
  DType compute = DType::kF32;  // f32 or bf16: what layers compute in (nn/module.h). Parameters, state and loss are f32
  bool accuracy = false;    // evaluation: also the share of targets that the largest output hits
};

// Outputs: "loss", "grad_norm" (with clipping), and every parameter and state, each updating its input. Inputs besides
// the batch: "lr" f32[] and "step" i64[], counted from 1.
Graph training_step(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                    const Optimizer& optimizer, const StepOptions& options = {});

// Outputs: "loss", and "correct" (how many, f32) if asked for.
Graph evaluation(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                 const StepOptions& options = {});

// Output: "prediction".
Graph inference(const ModelFn& model, const BatchField& field, const StepOptions& options = {});

}  // namespace trireme
