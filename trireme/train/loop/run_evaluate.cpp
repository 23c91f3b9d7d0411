// Validation in a run: whether it got better, and whether it is over (run_impl.h).
#include "trireme/train/loop/evaluator.h"

#include <charconv>
#include <cmath>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/train/loop/run_impl.h"

namespace trireme {
namespace {

// In a checkpoint's index, beside the configuration.
constexpr const char* kMeasure = "best_measure";
constexpr const char* kBest = "best_value";
constexpr const char* kBestStep = "best_step";
constexpr const char* kStale = "validations_since_best";
constexpr const char* kOwed = "validation_due";

std::string name_of(Measure measure) {
  return measure == Measure::kLoss ? "loss" : "accuracy";
}

template <class T>
bool parse(const std::string& text, T& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size();
}

}  // namespace

int64_t Run::evaluation_batch() const {
  return evaluation_batch_of(fit_);
}

void Run::evaluate(Recorder& recorder) {
  const Evaluator evaluator(session_.evaluation(), fit_.validation, evaluation_batch(), options_.step.accuracy);
  EvaluationResult found;
  log_sent("evaluation", [&] { found = evaluator.run(fit_.eval_batches); });
  result_.validation_loss = found.loss;
  if (options_.step.accuracy) result_.accuracy = found.accuracy;
  validated_ = result_.step;
  recorder.validation(result_.step, found.loss, options_.step.accuracy ? found.accuracy : -1);
}

double Run::measured() const {
  return fit_.measure == Measure::kLoss ? result_.validation_loss : result_.accuracy;
}

bool Run::judge() {
  const double sign = fit_.measure == Measure::kLoss ? 1 : -1;
  const bool better = std::isfinite(measured()) &&
                      (result_.best_step < 0 || sign * measured() < sign * result_.best - fit_.min_improvement);
  stale_ = better ? 0 : stale_ + 1;
  if (!better) return false;
  result_.best = measured();
  result_.best_step = result_.step;
  return true;
}

bool Run::validate(Recorder& recorder) {
  const double begin_s = now_s();
  evaluate(recorder);
  evaluations_s_ += now_s() - begin_s;
  const bool better = judge();
  result_.stopped_early = is_over();
  return better;
}

bool Run::is_validation_due() const {
  return fit_.validation && fit_.eval_every > 0 && result_.step % fit_.eval_every == 0;
}

bool Run::is_over() const {
  return fit_.patience > 0 && stale_ >= fit_.patience;
}

std::map<std::string, std::string> Run::progress_as_text() const {
  std::map<std::string, std::string> out;
  if (is_validation_due() && validated_ != result_.step) out.emplace(kOwed, "");
  if (result_.best_step < 0 && stale_ == 0) return out;
  out.insert({{kMeasure, name_of(fit_.measure)},
              {kBest, fmt::format("{}", result_.best)},
              {kBestStep, std::to_string(result_.best_step)},
              {kStale, std::to_string(stale_)}});
  return out;
}

void Run::take_up_progress(const ckpt::Reader& reader) {
  const std::map<std::string, std::string>& meta = reader.meta();
  const auto text = [&](const char* key) { return meta.contains(key) ? meta.at(key) : std::string(); };
  result_.best_step = -1;
  stale_ = 0;
  owes_validation_ = is_validation_due() && meta.contains(kOwed);
  if (text(kMeasure) != name_of(fit_.measure)) return;  // none yet, or of another measure
  const bool read =
      parse(text(kBest), result_.best) && parse(text(kBestStep), result_.best_step) && parse(text(kStale), stale_);
  if (!read) fail(ErrorKind::kCorrupt, "the checkpoint '{}' has a best validation that is not a number", reader.path());
  take_up_best();
}

}  // namespace trireme
