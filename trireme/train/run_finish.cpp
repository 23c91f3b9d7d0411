#include "trireme/train/run_impl.h"

#include <algorithm>
#include <map>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme {

bool Run::are_whole() {
  const std::vector<PlanInput>& inputs = session_.persistent();
  return std::all_of(inputs.begin(), inputs.end(), [&](const PlanInput& input) {
    const PlanValue& value = session_.compiled().plan.values[static_cast<size_t>(input.value)];
    return input.role != Role::kParameter || value.layout.is_replicated();
  });
}

std::function<View(std::string_view)> Run::parameters() {
  if (are_whole()) return [this](std::string_view name) { return session_.step().input(name); };
  const auto reader = std::make_shared<ckpt::Reader>(result_.checkpoint);
  const auto read = std::make_shared<std::map<std::string, HostTensor, std::less<>>>();
  return [reader, read](std::string_view name) {
    auto found = read->find(name);
    if (found == read->end()) found = read->emplace(std::string(name), reader->read(std::string(name))).first;
    return found->second.view();
  };
}

void Run::summarise_communication() {
  const auto steps = static_cast<double>(result_.step - first_);
  CommunicationTime of_a_step = communication_;
  result_.communication = over_ranks(job_.world(), of_a_step /= steps);
}

// A rank does 3 passes over its part of the batch in a step, a sample one pass over one sample for each token.
bool Run::sample_is_quick() {
  constexpr double kMostSeconds = 10;
  const double parts = 3 * static_cast<double>(fit_.batch) / static_cast<double>(job_.size());
  const double token_s = step_s_ / static_cast<double>(std::max<int64_t>(1, result_.step - first_)) / std::max(1.0, parts);
  if (token_s <= kMostSeconds) return true;
  TRIREME_LOG(kWarn, "train", "no sample is written: one token would take about {}", duration_text(token_s));
  return false;
}

void Run::finish(Recorder& recorder, double total_s, const std::string& failure) {
  if (job_.rank() != 0) return;
  const int64_t steps = std::max<int64_t>(1, result_.step - first_);
  ReportData report;
  report.title = options_.name;
  report.summary = fmt::format("{} of {} steps on {} rank{}", result_.step, total_, job_.size(),
                               job_.size() == 1 ? "" : "s");
  if (!failure.empty()) report.summary += "; then it failed: " + failure;
  report.headline = {{"Training loss", fmt::format("{:.4f}", result_.loss)}};
  if (fit_.validation) report.headline.emplace_back("Validation loss", fmt::format("{:.4f}", result_.validation_loss));
  if (options_.accuracy) report.headline.emplace_back("Accuracy", fmt::format("{:.2f} %", 100 * result_.accuracy));
  report.headline.emplace_back("Throughput", fmt::format("{} {}/s", compact_number(recorder.mean_units_per_s()),
                                                         options_.unit));
  if (result_.best_step >= 0 && (fit_.keep_best || fit_.patience > 0)) {
    const bool loss = fit_.measure == Measure::kLoss;
    report.headline.emplace_back(loss ? "Best validation loss" : "Best accuracy",
                                 fmt::format("{} at step {}", loss ? fmt::format("{:.4f}", result_.best) : fmt::format("{:.2f} %", 100 * result_.best),
                                             result_.best_step));
  }
  const ExecutionPlan& plan = session_.compiled().plan;
  report.facts = {{"Parameters", compact_number(static_cast<double>(session_.parameter_count()))},
                  {"Ranks", std::to_string(job_.size())},
                  {"Threads per rank", std::to_string(job_.pool().size())},
                  {"Transport", job_.world() ? std::string(job_.world()->transport()) : "none"},
                  {"Batch", fmt::format("{} samples over all ranks", fit_.batch)},
                  {"Arena per rank", fmt::format("{:.1f} MiB", static_cast<double>(plan.arena_bytes) / 1048576.0)},
                  {"Seed", std::to_string(options_.seed)},
                  {"Command", options_.command.empty() ? job_.command() : options_.command}};
  if (job_.size() > 1 && failure.empty()) report.facts.emplace_back("Communication", trireme::to_string(result_.communication));
  report.memory = memory_by_holding(plan);
  report.hidden_comm_ms = communication_.hidden_s() * 1e3 / static_cast<double>(steps);
  report.time = time_by_op(session_.step().times(), data_s_, total_s, steps);
  if (options_.sample && failure.empty() && !result_.interrupted && (are_whole() || !result_.checkpoint.empty()) && sample_is_quick()) {
    report.samples = {{"", options_.sample(parameters())}};
  }
  try {
    result_.report = recorder.finish(std::move(report));
  } catch (const Error& e) {
    if (failure.empty()) throw;
    TRIREME_LOG(kWarn, "train", "no report of the failed run: {}", e.text());
  }
}

}  // namespace trireme
