#include "trireme/train/run_impl.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/by_hand.h"

namespace trireme {

Run::Run(const ModelFn& model, const LossFn& loss, const Optimizer& optimizer, const TrainerOptions& options,
         const data::SourcePtr& train, const FitOptions& fit, Job& job)
    : options_(options), fit_(fit), job_(job), optimizer_(optimizer), train_(train),
      fields_(batch_fields(*train, fit.batch)), total_(steps_of(*train, fit)),
      by_hand_(is_by_hand(model, loss)),
      session_(step_graph(model, loss), evaluation_graph(model, loss),
               {.world = job.world(), .pool = &job.pool(), .seed = options.seed, .parallel = parallel(),
                .parameter_broadcast = options.parameter_broadcast}) {}

Parallel Run::parallel() const {
  Parallel out = options_.parallel;
  if (options_.mode == Mode::kDataParallel) out.follow_requests = false;
  out.by_hand = by_hand_;
  return out;
}

bool Run::is_by_hand(const ModelFn& model, const LossFn& loss) const {
  if (options_.mode == Mode::kHybrid) return true;
  if (options_.mode != Mode::kDataParallel) return false;
  const Graph graph = evaluation(model, loss, fields_, {.layerwise = options_.parallel.layerwise});
  return std::ranges::any_of(graph.inputs(), [](const Input& input) { return !input.piece.empty(); });
}

Graph Run::step_graph(const ModelFn& model, const LossFn& loss) const {
  std::vector<BatchField> fields = fields_;
  StepOptions how = step_options();
  cut_by_hand(parallel(), job_.size(), fields, how);
  return training_step(model, loss, fields, optimizer_, how);
}

std::optional<Graph> Run::evaluation_graph(const ModelFn& model, const LossFn& loss) const {
  if (!fit_.validation) return std::nullopt;
  require(fit_.validation->size() >= 1, "the validation set has no samples; leave it out, or give it some");
  require(fit_.eval_batch >= 0, "evaluation batch {}: it must be 1 or more, or 0 for the training batch", fit_.eval_batch);
  std::vector<BatchField> fields = batch_fields(*fit_.validation, evaluation_batch());
  StepOptions how = step_options();
  cut_by_hand(parallel(), job_.size(), fields, how);
  return evaluation(model, loss, fields, how);
}

StepOptions Run::step_options() const {
  return {.name = options_.name, .seed = options_.seed, .gradient_scale = options_.gradient_scale,
          .clip_norm = options_.clip_norm, .numerics = options_.parallel.numerics, .compute = options_.compute, .accuracy = options_.accuracy};
}

}  // namespace trireme
