// What a run is compiled from, its checks and its log of that (run_impl.h).
#include "trireme/base/counted.h"
#include "trireme/train/loop/run_impl.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/train/job/same_job.h"
#include "trireme/train/step/compile/remarks.h"
#include "trireme/train/step/graphs/loss_terms.h"

namespace trireme {
namespace {

std::vector<BatchField> evaluation_fields(const FitOptions& fit) {
  if (!fit.validation) return {};
  require(fit.validation->size() >= 1, "the validation set has no samples; leave it out, or give it some");
  require(fit.eval_batch >= 0, "evaluation batch {}: it must be 1 or more, or 0 for the training batch",
          fit.eval_batch);
  return batch_fields(*fit.validation, evaluation_batch_of(fit));
}

}  // namespace

void check_options(const Optimizer& optimizer, const TrainerOptions& options, const FitOptions& fit) {
  check(optimizer);
  constexpr double kMost = std::numeric_limits<float>::max();
  const auto at_least_0 = [](std::string_view what, double value) {
    require(value >= 0 && value <= kMost, "{} {}; it must be 0 or more, within what f32 holds", what, value);
  };
  at_least_0("clip_norm", options.step.clip_norm);
  at_least_0("gradient_scale", options.step.gradient_scale);
  at_least_0("schedule.final_ratio", options.schedule.final_ratio);
  at_least_0("the schedule's largest learning rate",
             learning_rate(optimizer) * std::max(1.0, options.schedule.final_ratio));
  at_least_0("min_improvement", fit.min_improvement);
  at_least_0("save_every_minutes", fit.save_every_minutes);
  require(fit.patience >= 0, "patience {}; it must be 0 or more", fit.patience);
  if (!fit.keep_best && fit.patience == 0) return;
  require(fit.validation && fit.eval_every > 0,
          "{} goes by validations during the run; give a validation set and eval_every",
          fit.keep_best ? "keep_best" : "patience");
  require(fit.measure == Measure::kLoss || options.step.accuracy,
          "measure kAccuracy without StepOptions::accuracy; use kLoss");
}

Run::Run(const ModelFn& model, const LossFn& loss, const Optimizer& optimizer, const TrainerOptions& options,
         const data::SourcePtr& train, const FitOptions& fit, Job& job)
    : options_(options),
      fit_(fit),
      job_(job),
      optimizer_(optimizer),
      train_(train),
      fields_(batch_fields(*train, fit.batch)),
      total_(steps_of(*train, fit)),
      lock_(lock_of(options, job)),
      assembly_{.model = model,
                .loss = loss,
                .optimizer = optimizer,
                .batch = fields_,
                .evaluation_batch = evaluation_fields(fit),
                .options = options},
      session_(session_of(assembly_, job.world(), &job.pool())),
      identity_(identity_of(assembly_, *train, fit.validation.get(), session_.device())) {}

std::optional<RunLock> Run::lock_of(const TrainerOptions& options, const Job& job) {
  if (options.out.empty() || job.rank() != 0) return std::nullopt;
  return std::optional<RunLock>(std::in_place, options.out, options.command.empty() ? job.command() : options.command);
}

// One batch after the other is validated, and their losses are weighted by their samples.
void Run::log_loss_of_parts() const {
  const Compiled& made = *session_.compiled_evaluation();
  const Graph& graph = made.graph;
  const std::optional<NodeId> node = made.partitioned.by_hand ? std::nullopt : not_a_mean_of_parts(graph);
  if (!node) return;
  const Node& made_by = graph.nodes()[static_cast<size_t>(*node)];
  TRIREME_LOG(
      kWarn, "train",
      "a validation's loss is the mean over its batches, which need not be that over its samples: the loss is a "
      "scalar that '{}' at '{}' makes of a whole batch; let it be values, or a CountedLoss where only some count",
      made_by.op->name, graph.scope_of(made_by));
}

std::string unlike_processors(const std::vector<std::string>& of_ranks) {
  const auto other = std::ranges::find_if(of_ranks, [&](const std::string& model) { return model != of_ranks[0]; });
  if (other == of_ranks.end()) return "";
  return fmt::format(
      "ranks compute on different processors: rank 0 on '{}', rank {} on '{}'. They may round differently, so that "
      "copies of a value on several ranks differ in last bits; on the device cpu, --numerics invariant keeps all bits "
      "the same",
      of_ranks[0], other - of_ranks.begin(), *other);
}

void Run::log_unlike_processors() const {
  if (!job_.world() || options_.step.numerics == Numerics::kInvariant) return;
  const std::string what = unlike_processors(gather_texts(*job_.world(), session_.device().processor()));
  if (!what.empty() && job_.rank() == 0) TRIREME_LOG(kWarn, "train", "{}", what);
}

void Run::log_without_effect() const {
  const int64_t warmup = options_.schedule.warmup_steps;
  if (warmup > total_) {
    TRIREME_LOG(kWarn, "train",
                "the learning rate rises for {} and the run ends after {}: it gets to {:.2g} times the peak",
                counted(warmup, "step"), total_, static_cast<double>(total_) / static_cast<double>(warmup));
  }
  if (!fit_.validation && (fit_.eval_every > 0 || fit_.eval_batches > 0 || fit_.eval_batch > 0)) {
    TRIREME_LOG(kWarn, "train", "nothing is held out, so nothing is validated, whatever the validation settings are");
  }
  if (fit_.validation && data::one_pass(fit_.validation->size(), evaluation_batch_of(fit_)).size() > 1)
    log_loss_of_parts();
  for (const std::string& what : remarks(session_.compiled(), options_.parallel, job_.size()))
    TRIREME_LOG(kWarn, "train", "{}", what);
}

}  // namespace trireme
