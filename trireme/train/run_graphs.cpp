#include "trireme/base/error.h"
#include "trireme/train/assembly.h"
#include "trireme/train/run_impl.h"

namespace trireme {
namespace {

std::vector<BatchField> evaluation_fields(const FitOptions& fit) {
  if (!fit.validation) return {};
  require(fit.validation->size() >= 1, "the validation set has no samples; leave it out, or give it some");
  require(fit.eval_batch >= 0, "evaluation batch {}: it must be 1 or more, or 0 for the training batch", fit.eval_batch);
  return batch_fields(*fit.validation, evaluation_batch_of(fit));
}

}  // namespace

Run::Run(const ModelFn& model, const LossFn& loss, const Optimizer& optimizer, const TrainerOptions& options,
         const data::SourcePtr& train, const FitOptions& fit, Job& job)
    : options_(options), fit_(fit), job_(job), optimizer_(optimizer), train_(train),
      fields_(batch_fields(*train, fit.batch)), total_(steps_of(*train, fit)),
      session_(session_of({.model = model,
                           .loss = loss,
                           .optimizer = optimizer,
                           .batch = fields_,
                           .evaluation_batch = evaluation_fields(fit),
                           .options = options},
                          job.world(), &job.pool())) {}

}  // namespace trireme
