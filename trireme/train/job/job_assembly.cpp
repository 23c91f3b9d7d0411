#include "trireme/train/job/job_assembly.h"

#include "trireme/base/error.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme {
Optimizer make_optimizer(const JobConfig& config) {
  std::unique_ptr<nn::OptimizerSpec> spec = optimizer_of(config).copy();
  spec->set_learning_rate(config.train.lr);
  return spec;
}

namespace {

// The parts in which ranks that are cut by hand have the batch, whatever the axes of their mesh are called.
int64_t parts_of_batch(const JobConfig& config, const Parallel& parallel, int64_t ranks) {
  const std::vector<BatchField> whole = batch_of(config, config.train.fit.batch);
  const std::vector<BatchField> of_rank = batch_of_rank(whole, parallel, ranks);
  const auto parts = [&](size_t i) { return whole[i].type.shape[0] / of_rank[i].type.shape[0]; };
  for (size_t i = 1; i < whole.size(); ++i) {
    require(parts(i) == parts(0),
            "configuration: parallel.gradients_mean = false sums over the parts of the batch, and '{}' is cut in {} "
            "parts, '{}' in {}; cut the samples of both alike",
            whole[0].name, parts(0), whole[i].name, parts(i));
  }
  require(parts(0) > 1 || ranks == 1,
          "configuration: parallel.gradients_mean = false has no effect where every rank has the whole batch; leave it "
          "out, or cut the batch by parallel.dataset");
  return parts(0);
}

// Ranks that each train on a part of the batch add up the gradients of their own means. Where the compiler cuts the
// model, there is one loss, the mean over the whole batch, and its gradient is that sum without a division
// (docs/guide/02).
double gradient_scale(const JobConfig& config, const Parallel& parallel, int64_t ranks) {
  const Mode mode = config.parallel.mode;
  if (config.parallel.gradients_mean || mode == Mode::kSemiAuto || mode == Mode::kAuto) return 1;
  const int64_t of_crew = ranks_of_crew(parallel.pipeline, ranks);
  return static_cast<double>(parallel.by_hand ? parts_of_batch(config, parallel, ranks) : of_crew);
}

// The micro-batches whose losses are summed.
int64_t summed_parts(const JobConfig& config, const Parallel& parallel) {
  if (!config.parallel.sum_micro_batch_losses) return 1;
  const int64_t count = micro_batches_of(parallel) * parallel.interleave;
  require(
      count > 1,
      "configuration: parallel.sum_micro_batch_losses = true, and a step has 1 micro-batch: there is nothing to sum; "
      "set parallel.gradient_accumulation_steps, or leave it out");
  return count;
}

PassOptions passes_of(const JobConfig& config) {
  PassOptions out = config.train.passes;
  out.recompute = recompute_of(config);
  return out;
}

TrainerOptions options_without_text(const JobConfig& config, int64_t ranks) {
  const bool classes = predicts_classes(config);
  const Parallel parallel = parallel_of(config, ranks);
  StepOptions step = config.train.step;
  step.name = config.name;
  step.gradient_scale = gradient_scale(config, parallel, ranks);
  step.summed_parts = summed_parts(config, parallel);
  step.accuracy = classes;
  return {.step = step,
          .mode = config.parallel.mode,
          .device = config.train.device,
          .tuning = config.train.tuning,
          .schedule = config.train.schedule,
          .tokens_per_sample = classes ? 1 : fields_of(config)[0].sample.elements(),
          .unit = classes ? "samples" : "tokens",
          .parallel = parallel,
          .passes = passes_of(config),
          .save_strategy = config.parallel.save_strategy,
          .only_trained_parameters = config.parallel.only_trainable_params,
          .trace = config.train.trace,
          .trace_steps = config.train.trace_steps,
          .parameter_broadcast = config.parallel.parameter_broadcast};
}

}  // namespace

TrainerOptions trainer_options(const JobConfig& config, int64_t ranks) {
  TrainerOptions out = options_without_text(config, ranks);
  out.config_text = to_toml(config);
  return out;
}

Assembly assembly_of(const JobConfig& config, nn::Module& model, int64_t ranks) {
  Assembly out = assembly_without_text(config, model, ranks);
  out.options.config_text = to_toml(config);
  return out;
}

Assembly assembly_without_text(const JobConfig& config, nn::Module& model, int64_t ranks) {
  return {.model = [&model](const nn::Fields& batch) { return model(batch); },
          .loss = make_loss(config),
          .optimizer = make_optimizer(config),
          .batch = batch_of(config, config.train.fit.batch),
          .evaluation_batch = config.data.validation > 0 ? batch_of(config, evaluation_batch_of(config.train.fit))
                                                         : std::vector<BatchField>{},
          .options = options_without_text(config, ranks)};
}

}  // namespace trireme
