// Trainer: trains a model written for one device on all ranks of the job.
#pragma once

#include <memory>

#include "trireme/data/source.h"
#include "trireme/nn/optimizer.h"
#include "trireme/train/loop/fit_result.h"
#include "trireme/train/step/fit_options.h"
#include "trireme/train/step/graphs/step.h"
#include "trireme/train/step/trainer_options.h"

namespace trireme {

class Trainer {
 public:
  Trainer(ModelFn model, LossFn loss, Optimizer optimizer, TrainerOptions options = {});
  // A module, and a loss named as a function: Trainer{net, cross_entropy, AdamW{}}.
  template <class Net>
  requires std::is_base_of_v<nn::Module, Net> Trainer(Net& net, Tensor (*loss)(const Tensor&, const Tensor&),
                                                      Optimizer optimizer, TrainerOptions options = {})
      : Trainer(model_of(net), LossFn(loss), std::move(optimizer), std::move(options)) {}
  // A module, and any other loss: a function of nn::Fields for batches of several fields.
  template <class Net, class Loss>
  requires(std::is_base_of_v<nn::Module, Net> && !std::is_convertible_v<Loss, Tensor (*)(const Tensor&, const Tensor&)>)
      Trainer(Net& net, Loss loss, Optimizer optimizer, TrainerOptions options = {})
      : Trainer(model_of(net), LossFn(std::move(loss)), std::move(optimizer), std::move(options)) {}
  ~Trainer();

  // Each call is a run of its own, from new weights; with options.resume from those of the newest checkpoint in
  // `out`, on which it goes to options.epochs or options.steps in all.
  FitResult fit(const data::SourcePtr& train, const FitOptions& options);

 private:
  static ModelFn model_of(nn::Module& net) {
    return [&net](const nn::Fields& batch) { return net(batch); };
  }

  ModelFn model_;
  LossFn loss_;
  Optimizer optimizer_;
  TrainerOptions options_;
};

}  // namespace trireme
