// Values of a job's keys that cannot be, each by its row, and combinations that cannot (config_impl.h).
#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
namespace {

constexpr double kMost = std::numeric_limits<float>::max();  // steps are computed in f32

// Each value by itself.
void check_rows(const JobConfig& config) {
  JobConfig copy = config;
  for (const ConfigKey& key : config_keys(copy)) {
    if (key.row.check != nullptr) key.row.check("configuration: " + key.name, key.target);
  }
}

// What is kept and when a run ends, by its validations.
void check_judging(const JobConfig& c) {
  const FitOptions& t = c.train.fit;
  const bool judged = t.keep_best || t.patience > 0;
  const std::string_view asked = t.keep_best ? "train.keep_best" : "train.patience";
  require(
      !judged || c.data.validation > 0,
      "configuration: {} goes by validations, and data.validation = 0 holds nothing out; set it to the share to hold "
      "out, such as 0.1",
      asked);
  require(!judged || t.eval_every > 0,
          "configuration: {} goes by validations during the run; set train.eval_every to the steps between them",
          asked);
  require(t.measure == Measure::kLoss || predicts_classes(c),
          "configuration: train.measure = 'accuracy'; model.kind '{}' has a loss only, use 'loss'", c.model.kind);
  require(judged || (t.measure == Measure::kLoss && t.min_improvement == 0),
          "configuration: train.measure and train.min_improvement say what train.keep_best and train.patience go by; "
          "set one of these too");
}

}  // namespace

void check_values(const JobConfig& c) {
  check_rows(c);
  check_kinds(c);
  const bool fast = c.train.step.numerics == Numerics::kFast;
  require(fast || c.train.step.compute == DType::kF32,
          "configuration: train.numerics = 'invariant' keeps the bits of f32 sums only; train.dtype is '{}', use 'f32'",
          to_string(c.train.step.compute));
  require(fast || c.train.passes.loss_pieces == 1,
          "configuration: train.numerics = 'invariant' fixes the order of sums, which train.loss_pieces = {} changes; "
          "leave one out",
          c.train.passes.loss_pieces);
  require(c.train.label_smoothing == 0 || !c.parallel.vocabulary,
          "configuration: train.label_smoothing = {} with parallel.vocabulary: the loss of a vocabulary that is cut "
          "over ranks has no smoothing; use 0, or leave parallel.vocabulary out",
          c.train.label_smoothing);
  nn::check_numbers(c.train.step.groups, optimizer_of(c), "configuration: train.groups ");
  check_judging(c);
  const double final_ratio = c.train.schedule.final_ratio;
  const double most = c.train.lr * std::max(1.0, final_ratio);
  require(
      static_cast<float>(c.train.lr) > 0 && most <= kMost,
      "configuration: train.lr = {}, train.final_ratio = {}: the learning rates that they make must be above 0 and at "
      "most {:.3g} (f32)",
      c.train.lr, final_ratio, kMost);
  require(c.train.fit.steps > 0 || c.train.fit.epochs > 0,
          "configuration: neither train.steps nor train.epochs is set; one of them must be 1 or more");
  require(c.train.fit.steps == 0 || c.train.fit.epochs == 0,
          "configuration: train.steps = {} and train.epochs = {} both say how long the job trains; leave one out",
          c.train.fit.steps, c.train.fit.epochs);
  check_effects(c);
}

}  // namespace trireme
