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
#include "trireme/train/step/graphs/hand_cut.h"
#include "trireme/train/step/graphs/step_options.h"

namespace trireme {

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

// Outputs: "loss", "grad_norm" (with clipping), and every parameter and state, each updating its input. Inputs besides
// the batch: "lr" f32[] and "step" i64[], counted from 1.
Graph training_step(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                    const Optimizer& optimizer, const StepOptions& options = {}, const HandCut& cut = {});

// Outputs: "loss"; "counted" (f32, how many losses it is the mean of) where only some count; and "correct" (f32, how
// many, of those that count) if asked for.
Graph evaluation(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                 const StepOptions& options = {}, const HandCut& cut = {});

// Outputs: what the model predicts, "prediction" where it is one tensor. Inputs: the fields that it reads.
Graph inference(const ModelFn& model, const std::vector<BatchField>& batch, const StepOptions& options = {});

// The same of a language model for the next tokens of a sequence alone, which the batch is of: one token for a field of
// [b,1]. What the model keeps of up to `kept_tokens` tokens is state, which starts with zeros; the input "position"
// i32[] is how many of them came before (nn/decoding.h).
Graph decoding(const ModelFn& model, const std::vector<BatchField>& batch, int64_t kept_tokens,
               const StepOptions& options = {});
// The same of tokens that are read and whose predictions nobody asks for: what the model keeps of them is all it makes.
Graph reading(const ModelFn& model, const std::vector<BatchField>& batch, int64_t kept_tokens,
              const StepOptions& options = {});

}  // namespace trireme
