// From a model's code to the graphs of training: one training step (forward, backward, clipping, update) and one
// evaluation (forward and loss only).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/ir/tensor.h"
#include "trireme/nn/module.h"
#include "trireme/nn/optimizer.h"
#include "trireme/plan/parallel.h"

namespace trireme {

// A part of the batch: shapes have the *whole* batch in front.
struct BatchField {
  std::string name;
  TensorType type;
  std::string piece = {};  // of a rank's part, for a model that is cut by hand: how the parts of all lie (ir/graph.h)
};

// The model as a function of the first field, and its loss against the second: a scalar, or values that are averaged.
// The loss is given the prediction in f32.
using ModelFn = std::function<Tensor(const Tensor& x)>;
using LossFn = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;

struct StepOptions {
  std::string name = "model";
  uint64_t seed = 0;                    // of dropout
  double gradient_scale = 1;            // multiplies every gradient, before clipping
  double clip_norm = 0;                 // gradients are scaled so that their global norm is at most this; 0: not at all
  Numerics numerics = Numerics::kFast;  // kInvariant: the gradients' norm is summed exactly
  DType compute = DType::kF32;  // f32 or bf16: what layers compute in (nn/module.h). Parameters, state and loss are f32
  // The model's code works on the pieces of this mesh's ranks, with collectives of its own (docs/guide/04): the batch
  // is a rank's, and what is trained, and reported as the loss, is the mean of all ranks' losses. The gradient of a
  // parameter is summed over the ranks that hold the same of it.
  std::optional<Mesh> by_hand = {};
  std::vector<CutRule> layerwise =
      {};                 // parameters of which each rank has a piece, or values of its own (plan/parallel.h)
  bool accuracy = false;  // evaluation: also the share of targets that the largest output hits
};

// Outputs: "loss", "grad_norm" (with clipping), and every parameter and state, each updating its input. Inputs besides
// the batch: "lr" f32[] and "step" i64[], counted from 1.
Graph training_step(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                    const Optimizer& optimizer, const StepOptions& options = {});

// Outputs: "loss", and "correct" (how many, f32) if asked for.
Graph evaluation(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                 const StepOptions& options = {});

// A rank's part of a batch, as parallel.dataset cuts it, for a model that is cut by hand.
std::vector<BatchField> batch_of_rank(const std::vector<BatchField>& batch, const Parallel& parallel, int64_t ranks);

// Output: "prediction".
Graph inference(const ModelFn& model, const BatchField& field, const StepOptions& options = {});

}  // namespace trireme
