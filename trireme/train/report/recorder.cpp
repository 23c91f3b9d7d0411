#include "trireme/train/report/recorder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Recorder::Recorder(const Options& options) : options_(options) {
  progress_ = std::make_unique<Progress>(Progress::Options{.shown = options.progress});
  if (!options.out.empty()) {
    const std::string metrics = options.out + "/metrics.jsonl";
    if (options.resume_step >= 0 && is_file(metrics)) take_up(metrics);
    log_ = std::make_unique<RunLog>(metrics, RunLogOptions{.resume_step = options.resume_step});
    board_ = std::make_unique<TensorboardWriter>(options.out + "/tensorboard",
                                                 std::max<int64_t>(0, options.resume_step) + 1);
  }
  state_.total = options.total_steps;
  state_.unit = options_.unit;
  state_.step = std::max<int64_t>(0, options.resume_step);
}

void Recorder::write(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kIo) throw;
    if (!is_told_) TRIREME_LOG(kWarn, "train", "{}; the run goes on, and tries again", e.text());
    is_told_ = true;
  }
}

void Recorder::scalar(std::string_view tag, double value, int64_t step) {
  write([&] { board_->scalar(tag, value, step); });
}

void Recorder::take_up(const std::string& metrics) {
  try {
    for (const RunRecord& record : read_run_log(metrics)) {
      if (record.step > options_.resume_step) break;
      const std::map<std::string, double> values(record.values.begin(), record.values.end());
      const auto value = [&](const char* key) { return values.contains(key) ? values.at(key) : kNotKnown; };
      if (values.contains("val_loss")) {
        validation_.push_back({static_cast<double>(record.step), value("val_loss")});
      } else {
        records_.push_back(
            {.step = record.step, .loss = value("loss"), .lr = value("lr"), .seconds = value("ms") / 1e3});
      }
    }
  } catch (const Error& e) {
    TRIREME_LOG(kWarn, "train", "the report begins at step {}: {}", options_.resume_step + 1, e.text());
  }
}

void Recorder::step(const StepRecord& record) {
  // The first step warms caches up: it does not count in the mean.
  smooth_s_ = steps_ < 2 ? record.seconds : 0.9 * smooth_s_ + 0.1 * record.seconds;
  if (steps_ > 0) total_s_ += record.seconds;
  ++steps_;
  records_.push_back(record);
  const double units_per_s = options_.units_per_step / smooth_s_;
  state_.step = record.step;
  state_.loss = record.loss;
  state_.units_per_s = units_per_s;
  state_.ms_per_step = smooth_s_ * 1e3;
  state_.eta_s = static_cast<double>(options_.total_steps - record.step) * smooth_s_;
  progress_->update(state_);
  if (!log_) return;
  RunRecord line{record.step,
                 {{"loss", record.loss},
                  {"lr", record.lr},
                  {options_.unit + "_per_s", options_.units_per_step / record.seconds},
                  {"ms", record.seconds * 1e3}}};
  if (record.grad_norm >= 0) line.values.emplace_back("grad_norm", record.grad_norm);
  if (options_.communicates) {
    line.values.emplace_back("comm_busy_ms", record.communication.busy_s * 1e3);
    line.values.emplace_back("comm_exposed_ms", record.communication.exposed_s * 1e3);
  }
  write([&] { log_->write(line); });
  scalar("train/loss", record.loss, record.step);
  scalar("train/learning_rate", record.lr, record.step);
  scalar(fmt::format("throughput/{}_per_s", options_.unit), units_per_s, record.step);
  if (record.grad_norm >= 0) scalar("train/grad_norm", record.grad_norm, record.step);
}

void Recorder::validation(int64_t step, double loss, double accuracy) {
  state_.val_loss = loss;
  progress_->update(state_);
  validation_.push_back({static_cast<double>(step), loss});
  if (!log_) return;
  RunRecord line{step, {{"val_loss", loss}}};
  if (accuracy >= 0) line.values.emplace_back("val_accuracy", accuracy);
  write([&] { log_->write(line); });
  scalar("validation/loss", loss, step);
  if (accuracy >= 0) scalar("validation/accuracy", accuracy, step);
}

void Recorder::flush() {
  if (!log_) return;
  write([&] { log_->flush(); });
  write([&] { board_->flush(); });
}

double Recorder::mean_units_per_s() const {
  if (steps_ < 2) return smooth_s_ > 0 ? options_.units_per_step / smooth_s_ : kNotKnown;
  return options_.units_per_step * static_cast<double>(steps_ - 1) / total_s_;
}

std::string Recorder::finish(ReportData report) {
  progress_->finish();
  if (!log_) return "";
  flush();
  for (const StepRecord& record : records_) {
    const auto x = static_cast<double>(record.step);
    report.train_loss.push_back({x, record.loss});
    report.learning_rate.push_back({x, record.lr});
    report.throughput.push_back({x, options_.units_per_step / record.seconds});
  }
  report.validation_loss = validation_;
  report.unit = options_.unit;
  const std::string path = options_.out + "/report.html";
  write_report(path, report);
  return path;
}

std::vector<ReportData::Time> time_by_op(const std::vector<ActionTime>& times, double data_s, double steps_s,
                                         int64_t steps) {
  constexpr size_t kShown = 10;
  std::map<std::string, double> compute;
  double comm_s = 0;
  double moves_s = 0;
  double compute_s = 0;
  for (const ActionTime& time : times) {
    if (communicates(time.lane)) {
      comm_s += time.seconds;
    } else if (in_background(time.lane)) {
      moves_s += time.seconds;
    } else {
      compute[std::string(time.op)] += time.seconds;
      compute_s += time.seconds;
    }
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [op, seconds] : compute) sorted.emplace_back(seconds, op);
  std::sort(sorted.rbegin(), sorted.rend());
  const double to_ms = 1e3 / static_cast<double>(std::max<int64_t>(1, steps));
  std::vector<ReportData::Time> out;
  double rest = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i < kShown) {
      out.push_back({sorted[i].second, sorted[i].first * to_ms, TimeGroup::kCompute});
    } else {
      rest += sorted[i].first;
    }
  }
  if (rest > 0) out.push_back({"other ops", rest * to_ms, TimeGroup::kCompute});
  if (comm_s > 0) out.push_back({"communication (exposed)", comm_s * to_ms, TimeGroup::kCommunication});
  if (moves_s > 0) out.push_back({"moves between tiers (exposed)", moves_s * to_ms, TimeGroup::kCommunication});
  out.push_back({"data", data_s * to_ms, TimeGroup::kData});
  out.push_back({"other", std::max(0.0, steps_s - compute_s - comm_s - moves_s - data_s) * to_ms, TimeGroup::kOther});
  return out;
}

std::vector<ReportData::Memory> memory_by_holding(const ExecutionPlan& plan) {
  static constexpr const char* kNames[] = {"parameters",  "optimizer state", "data",
                                           "activations", "gradients",       "workspace"};
  const std::vector<int64_t> bytes = bytes_by_holding(plan);
  std::vector<ReportData::Memory> out;
  int64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    out.push_back({kNames[i], bytes[i]});
    sum += bytes[i];
  }
  out.push_back({"between buffers", plan.arena().bytes - sum});
  if (plan.arena(Tier::kHost).bytes > 0) out.push_back({"on the host", plan.arena(Tier::kHost).bytes});
  if (plan.arena(Tier::kDisk).bytes > 0) out.push_back({"on the disk", plan.arena(Tier::kDisk).bytes});
  return out;
}

}  // namespace trireme
