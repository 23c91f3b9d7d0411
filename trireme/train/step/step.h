// From a model's code to the graphs of training: one training step (forward, backward, clipping, update) and one
// evaluation (forward and loss only).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/ir/tensor.h"
#include "trireme/nn/fields.h"
#include "trireme/nn/module.h"
#include "trireme/nn/optimizer.h"
#include "trireme/ops/loss/counted_loss.h"
#include "trireme/plan/parallel.h"

namespace trireme {

// A part of the batch: shapes have the *whole* batch in front.
struct BatchField {
  std::string name;
  TensorType type;
  Piece piece = {};  // of a rank's part, for a model that is cut by hand: how the parts of all lie (ir/graph.h)
};

// The model: a function of a batch's fields by name, which gives what it predicts by name (nn/fields.h), or as one
// tensor; or a function of one tensor, which is given the first of two fields.
class ModelFn {
 public:
  ModelFn() = default;
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, ModelFn>) ModelFn(F model)
      : of_one_tensor_(!std::is_invocable_v<const F&, const nn::Fields&>) {  // NOLINT: any function
    if constexpr (std::is_invocable_r_v<nn::Fields, const F&, const nn::Fields&>) {
      call_ = std::move(model);
    } else if constexpr (std::is_invocable_v<const F&, const nn::Fields&>) {
      call_ = [model = std::move(model)](const nn::Fields& batch) -> nn::Fields {
        return {{nn::kPrediction, model(batch)}};
      };
    } else {
      call_ = [model = std::move(model)](const nn::Fields& batch) -> nn::Fields {
        return {{nn::kPrediction, model(batch.front().second)}};
      };
    }
  }

  nn::Fields operator()(const nn::Fields& batch) const { return call_(batch); }
  bool of_one_tensor() const { return of_one_tensor_; }

 private:
  std::function<nn::Fields(const nn::Fields&)> call_;
  bool of_one_tensor_ = false;
};

// The loss: a function of what the model predicts and of the batch, by name; or of two tensors, the one prediction and
// the last field. It gives a scalar, values that are averaged, or values of which only some count (CountedLoss in
// ops/loss), and is given predictions in f32. A scalar should be a mean or a sum of values of as many for each sample:
// evaluations of several batches weight it by samples.
class LossFn {
 public:
  LossFn() = default;
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, LossFn>) LossFn(F loss) {  // NOLINT: any function
    if constexpr (std::is_invocable_v<const F&, const nn::Fields&, const nn::Fields&>) {
      call_ = std::move(loss);
    } else {
      call_ = [loss = std::move(loss)](const nn::Fields& predicted, const nn::Fields& batch) -> CountedLoss {
        return loss(only_of(predicted), batch.back().second);
      };
    }
  }

  CountedLoss operator()(const nn::Fields& predicted, const nn::Fields& batch) const { return call_(predicted, batch); }

 private:
  // Throws kInvalidArgument where the model predicts more.
  static const Tensor& only_of(const nn::Fields& predicted);

  std::function<CountedLoss(const nn::Fields&, const nn::Fields&)> call_;
};

struct StepOptions {
  std::string name = "model";
  uint64_t seed = 0;          // of dropout
  double gradient_scale = 1;  // multiplies every gradient, before clipping
  // The loss that is trained on and reported is the sum of those of so many equal parts of the batch, instead of the
  // mean over it.
  int64_t summed_parts = 1;
  double clip_norm = 0;                 // gradients are scaled so that their global norm is at most this; 0: not at all
  Numerics numerics = Numerics::kFast;  // kInvariant: the gradients' norm is summed exactly
  DType compute = DType::kF32;  // f32 or bf16: what layers compute in (nn/module.h). Parameters, state and loss are f32
  // The model's code works on the pieces of this mesh's ranks, with collectives of its own (docs/guide/04): the batch
  // is a rank's, and what is trained, and reported as the loss, is the mean of all ranks' losses. The gradient of a
  // parameter is summed over the ranks that hold the same of it.
  std::optional<Mesh> by_hand = {};
  std::vector<PieceRule> layerwise =
      {};                 // parameters of which each rank has a piece, or values of its own (plan/parallel.h)
  bool accuracy = false;  // evaluation: also how many elements of the last field the largest output hits
};

// Outputs: "loss", "grad_norm" (with clipping), and every parameter and state, each updating its input. Inputs besides
// the batch: "lr" f32[] and "step" i64[], counted from 1.
Graph training_step(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                    const Optimizer& optimizer, const StepOptions& options = {});

// Outputs: "loss"; "counted" (f32, how many losses it is the mean of) where only some count; and "correct" (f32, how
// many, of those that count) if asked for.
Graph evaluation(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                 const StepOptions& options = {});

// A rank's part of a batch, as parallel.dataset cuts it, for a model that is cut by hand.
std::vector<BatchField> batch_of_rank(const std::vector<BatchField>& batch, const Parallel& parallel, int64_t ranks);

// Outputs: what the model predicts, "prediction" where it is one tensor. Inputs: the fields that it reads.
Graph inference(const ModelFn& model, const std::vector<BatchField>& batch, const StepOptions& options = {});

}  // namespace trireme
