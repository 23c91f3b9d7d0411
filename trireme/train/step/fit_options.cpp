#include "trireme/train/step/fit_options.h"

#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr NameOf<Measure> kMeasures[] = {{"loss", Measure::kLoss}, {"accuracy", Measure::kAccuracy}};

void check_minutes(const std::string& name, const KeyTarget& target) {
  const double value = *std::get<double*>(target);
  require(value >= 0 && value <= std::numeric_limits<float>::max(), "{} = {}; it must be 0 or more, and finite", name,
          value);
}

std::vector<Key> keys_of_length(FitOptions& fit) {
  constexpr OnResume kFree = OnResume::kFree;
  return {{.name = "steps",
           .target = &fit.steps,
           .doc = "number of steps; or set train.epochs, of which either replaces the other",
           .check = check_not_below_0,
           .flag = "--steps",
           .of_run = true,
           .on_resume = kFree},
          {.name = "epochs",
           .target = &fit.epochs,
           .doc = "passes over the training samples; or set train.steps",
           .check = check_not_below_0,
           .flag = "--epochs",
           .of_run = true,
           .on_resume = kFree},
          {.name = "batch",
           .target = &fit.batch,
           .doc = "samples in a step, over all ranks",
           .check = check_size,
           .flag = "--batch",
           .on_resume = kFree}};
}

std::vector<Key> keys_of_validation(FitOptions& fit) {
  constexpr OnResume kFree = OnResume::kFree;
  return {{.name = "eval_every",
           .target = &fit.eval_every,
           .doc = "steps between validations; 0: at the end only",
           .check = check_not_below_0,
           .flag = "--eval-every",
           .of_run = true,
           .on_resume = kFree},
          {.name = "eval_batches",
           .target = &fit.eval_batches,
           .doc = "batches in a validation; 0: all samples that are held out",
           .check = check_not_below_0,
           .flag = "--eval-batches",
           .of_run = true,
           .on_resume = kFree},
          {.name = "eval_batch",
           .target = &fit.eval_batch,
           .doc = "samples in a validation batch, over all ranks; 0: train.batch. Samples that are left over after "
                  "whole batches count too, with their own weight",
           .check = check_not_below_0,
           .flag = "--eval-batch",
           .on_resume = kFree},
          {.name = "measure",
           .target = one_of(&fit.measure, kMeasures),
           .doc = "loss or accuracy: the result of a validation that train.keep_best and train.patience go by",
           .flag = "--measure",
           .of_run = true,
           .on_resume = kFree},
          {.name = "keep_best",
           .target = &fit.keep_best,
           .doc = "save and keep the checkpoint with the best validation so far, besides the newest; checkpoints/best "
                  "points to it",
           .flag = "--keep-best",
           .of_run = true,
           .on_resume = kFree},
          {.name = "patience",
           .target = &fit.patience,
           .doc = "the run ends after this many validations in a row without an improvement; 0: never",
           .check = check_not_below_0,
           .flag = "--patience",
           .of_run = true,
           .on_resume = kFree},
          {.name = "min_improvement",
           .target = &fit.min_improvement,
           .doc = "a validation must be better by more than this to count as an improvement",
           .check = check_not_negative,
           .flag = "--min-improvement",
           .of_run = true,
           .on_resume = kFree}};
}

std::vector<Key> keys_of_saving(FitOptions& fit) {
  constexpr OnResume kFree = OnResume::kFree;
  return {
      {.name = "init_from",
       .target = &fit.init_from,
       .doc =
           "warm start: a checkpoint of another job, a run's folder, or safetensors of another program, of which "
           "parameters begin with the values that have their names there; the run begins at step 0 with new state of "
           "the optimizer",
       .flag = "--init-from",
       .of_run = true,
       .on_resume = kFree},
      {.name = "init_except",
       .target = &fit.init_except,
       .doc =
           "names, like [\"head.*\"], that are not taken from train.init_from; all others must be in both models, of "
           "one shape",
       .flag = "--init-except",
       .of_run = true,
       .no_effect_with = "init_from = ''",
       .on_resume = kFree},
      {.name = "save_every",
       .target = &fit.save_every,
       .doc = "steps between checkpoints; 0: at the end only",
       .check = check_not_below_0,
       .flag = "--save-every",
       .of_run = true,
       .on_resume = kFree},
      {.name = "save_every_minutes",
       .target = &fit.save_every_minutes,
       .doc = "minutes between checkpoints by the first rank's clock, besides train.save_every; 0: none",
       .check = check_minutes,
       .flag = "--save-every-minutes",
       .of_run = true,
       .on_resume = kFree},
      {.name = "merged_save",
       .target = &fit.merged_save,
       .doc =
           "with each checkpoint, also write its parameters as whole tensors to model.safetensors in the run's folder",
       .flag = "--merged-save",
       .of_run = true,
       .on_resume = kFree},
      {.name = "keep",
       .target = &fit.keep,
       .doc = "how many of the newest checkpoints to keep; 1 keeps the one before too until a step from the newest was "
              "finite; 0: all. An earlier run's files in the same folder are moved to earlier-1, -2 and so on, and are "
              "all kept",
       .check = check_not_below_0,
       .flag = "--keep",
       .of_run = true,
       .on_resume = kFree}};
}

}  // namespace

std::vector<Key> keys_of(FitOptions& fit) {
  std::vector<Key> out = keys_of_length(fit);
  for (std::vector<Key> more : {keys_of_validation(fit), keys_of_saving(fit)})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace trireme
