// Predictions of a trained model for batches, on one rank or cut over the ranks of a job, however training cut it.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/thread_pool.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/run/executor.h"
#include "trireme/nn/fields.h"
#include "trireme/train/step/graphs/step.h"
#include "trireme/train/step/session/session.h"
#include "trireme/train/step/trainer_options.h"

namespace trireme {

class Predictor {
 public:
  // The model's code and the fields of a batch, whole, as for training. Ranks share the model and the batch as
  // `options` say by mode, parallel and device: data parallel ranks have parts of the batch, those of a pipeline
  // stages, for which one micro-batch is enough. What `parallel` says of things that only training has, like optimizer
  // parallelism and rules for ops of the loss, changes nothing. Each rank reads its pieces of the checkpoint alone.
  // Collective; a null world is one rank. Throws kInvalidArgument for a mode in which the model's own code cuts it, and
  // where the checkpoint is of another model, naming what differs.
  Predictor(const ModelFn& model, std::vector<BatchField> batch, const ckpt::Reader& checkpoint,
            const TrainerOptions& options, comm::World* world, ThreadPool* pool);

  // The fields of a batch, whole and in the order of the constructor's, the same on all ranks; of those that the model
  // does not read the bytes are not looked at. Collective. Throws kInvalidArgument for views of other types.
  void run(std::span<const View> batch);

  // What the last run predicted, whole, on every rank: by name where the model predicts several.
  HostPiece prediction(std::string_view name = nn::kPrediction) const;

  const Session& session() const { return *session_; }

 private:
  std::vector<BatchField> batch_;
  std::unique_ptr<Session> session_;
};

}  // namespace trireme
