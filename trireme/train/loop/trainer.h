// Trainer: trains a model written for one device on all ranks of the job.
#pragma once

#include <memory>

#include "trireme/data/source.h"
#include "trireme/nn/optimizer.h"
#include "trireme/train/loop/fit_result.h"
#include "trireme/train/step/fit_options.h"
#include "trireme/train/step/step.h"
#include "trireme/train/step/trainer_options.h"

namespace trireme {

class Trainer {
 public:
  Trainer(ModelFn model, LossFn loss, Optimizer optimizer, TrainerOptions options = {});
  // A module, and a loss named as a function: Trainer{net, cross_entropy, AdamW{}}.
  template <class Net>
  requires std::is_base_of_v<nn::Module, Net> Trainer(Net& net, Tensor (*loss)(const Tensor&, const Tensor&),
                                                      Optimizer optimizer, TrainerOptions options = {})
      : Trainer([&net](const Tensor& x) { return net(x); }, LossFn(loss), std::move(optimizer), std::move(options)) {}
  ~Trainer();

  FitResult fit(const data::SourcePtr& train, const FitOptions& options);

 private:
  ModelFn model_;
  LossFn loss_;
  Optimizer optimizer_;
  TrainerOptions options_;
};

}  // namespace trireme
