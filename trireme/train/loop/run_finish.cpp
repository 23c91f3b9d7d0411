// The end of a run: its figures over all ranks, and its report (run_impl.h).
#include "trireme/base/counted.h"
#include "trireme/base/joined_text.h"
#include "trireme/train/loop/run_impl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/train/checkpoints/warm_start.h"
#include "trireme/train/report/late_lane.h"
#include "trireme/train/report/memory_chart.h"
#include "trireme/train/report/utilisation.h"
#include "trireme/version.h"

namespace trireme {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

void add_memory(const Compiled& compiled, ReportData& report) {
  report.memory = memory_by_holding(largest_plan(compiled));
  report.memory_over_time = memory_charts(compiled);
}

std::string describe(const Schedule& schedule, double peak) {
  std::string out = fmt::format("{}", peak);
  if (schedule.warmup_steps > 0) out += fmt::format(" after {} of warm-up", counted(schedule.warmup_steps, "step"));
  if (schedule.kind == Schedule::Kind::kConstant) return out;
  return out + fmt::format(", then {} to {}",
                           schedule.kind == Schedule::Kind::kLinear ? "down a line" : "down a cosine",
                           peak * schedule.final_ratio);
}

}  // namespace

bool Run::are_whole() {
  if (session_.compiled().crews.size() > 1) return false;  // others have the rest
  const std::vector<PlanInput>& inputs = session_.persistent();
  return std::ranges::all_of(inputs_of_model(session_.compiled().graph), [&](const Input* of_model) {
    const auto input = std::ranges::find(inputs, of_model->name, &PlanInput::name);
    return input == inputs.end() || session_.plan().values[static_cast<size_t>(input->value)].layout->is_replicated();
  });
}

std::function<View(std::string_view)> Run::parameters() {
  if (are_whole()) {
    const auto pieces = std::make_shared<std::map<std::string, HostPiece, std::less<>>>();
    return [this, pieces](std::string_view name) {
      auto found = pieces->find(name);
      if (found == pieces->end()) found = pieces->emplace(name, session_.step().read_input(name)).first;
      return found->second.view;
    };
  }
  const auto reader = std::make_shared<ckpt::Reader>(result_.checkpoint);
  const auto read = std::make_shared<std::map<std::string, HostTensor, std::less<>>>();
  return [reader, read](std::string_view name) {
    auto found = read->find(name);
    if (found == read->end()) found = read->emplace(std::string(name), reader->read(std::string(name))).first;
    return found->second.view();
  };
}

void Run::summarise_communication() {
  const auto steps = static_cast<double>(std::max<int64_t>(1, result_.step - first_));
  CommunicationTime of_a_step = communication_;
  result_.communication = over_ranks(job_.world(), of_a_step /= steps);
}

double Run::utilisation() const {
  const double steps = static_cast<double>(std::max<int64_t>(1, result_.step - first_));
  const double ranks = session_.compiled().plan().by_hand ? job_.size() : 1;  // whose graph is a rank's
  return flops_of(session_.compiled().graph) * ranks / (steps_s_ / steps) / peak_flops_per_s_;
}

// A rank does 3 passes over its part of the batch in a step, a sample one pass over one sample for each token.
bool Run::sample_is_quick() {
  constexpr double kMostSeconds = 10;
  const double parts = 3 * static_cast<double>(fit_.batch) / static_cast<double>(job_.size());
  const double token_s =
      steps_s_ / static_cast<double>(std::max<int64_t>(1, result_.step - first_)) / std::max(1.0, parts);
  if (token_s <= kMostSeconds) return true;
  TRIREME_LOG(kWarn, "train", "no sample is written: one token would take about {}", duration_text(token_s));
  return false;
}

// Of a pipeline by the ranks that have them.
static std::string chosen_homes(const Compiled& compiled) {
  std::string out;
  for (size_t crew = 0; crew < compiled.crews.size(); ++crew) {
    const std::vector<std::string> chosen = as_keys(compiled.crews[crew].chosen_homes);
    if (chosen.empty()) continue;
    if (!out.empty()) out += "; ";
    const int64_t ranks = compiled.crews[crew].plan.mesh.devices();
    const int64_t first = static_cast<int64_t>(crew) * ranks;
    if (compiled.crews.size() > 1)
      out += ranks == 1 ? fmt::format("rank {}: ", first) : fmt::format("ranks {} to {}: ", first, first + ranks - 1);
    out += joined_text(chosen, ", ");
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> Run::facts() const {
  const ExecutionPlan& plan = largest_plan(session_.compiled());
  std::vector<std::pair<std::string, std::string>> out = options_.facts;
  const std::vector<std::pair<std::string, std::string>> own{
      {"Parameters", compact_number(static_cast<double>(session_.parameter_count()))},
      {"Samples", describe_data()},
      {"Batch", counted(fit_.batch, "sample") + " over all ranks"},
      {"Optimizer", describe(optimizer_.spec())},
      {"Learning rate", describe(options_.schedule, learning_rate(optimizer_))},
      {"Computed in", std::string(to_string(options_.step.compute))},
      {"Seed", std::to_string(options_.step.seed)},
      {"Ranks", std::to_string(job_.size())},
      {"Threads per rank", std::to_string(job_.pool().size())},
      {"Transport", job_.world() ? std::string(job_.world()->transport()) : "none"},
      {"Arena per rank", fmt::format("{}{:.1f} MiB", session_.compiled().crews.size() == 1 ? "" : "up to ",
                                     static_cast<double>(plan.arena().bytes) / 1048576.0)},
      {"Host", host_name()},
      {"Ended", utc_text(unix_time_s())},
      {"Version", fmt::format("trireme {} ({}), {}, {}", kVersion, build_info().commit, build_info().compiler,
                              build_info().options)},
      {"Command", options_.command.empty() ? job_.command() : options_.command}};
  out.insert(out.end(), own.begin(), own.end());
  if (std::string groups = nn::describe_groups(session_.compiled().graph, options_.step.groups); !groups.empty())
    out.emplace_back("Parameter groups", std::move(groups));
  if (!fit_.init_from.empty()) out.emplace_back("Begins as in", fit_.init_from);
  if (const std::string chosen = chosen_homes(session_.compiled()); !chosen.empty())
    out.emplace_back("Chosen homes", chosen);
  if (const std::string disk = session_.step().disk(); !disk.empty()) out.emplace_back("On the disk, per rank", disk);
  if (disk_bytes_per_s_)
    out.emplace_back("The disk's rate", fmt::format("{:.3g} GB/s, measured at the start", *disk_bytes_per_s_ / 1e9));
  if (const std::optional<Timetable>& timetable = session_.compiled().timetable)
    out.emplace_back("Pipeline", fmt::format("{} stages on {} parts of the ranks, schedule {}, {}", timetable->stages,
                                             timetable->crews.size(), timetable->name,
                                             counted(timetable->micro_batches, "micro-batch")));
  if (first_ > 0) out.emplace_back("Resumed", fmt::format("after step {}", first_));
  return out;
}

void Run::add_missed_prediction(ReportData& report) const {
  const std::vector<ActionTime> times = session_.step().times();
  const bool are_on_one_host = job_.world() != nullptr && job_.world()->is_in_memory();
  const std::string missed = missed_prediction(session_.compiled(), {.times = times,
                                                                     .count = result_.step - first_,
                                                                     .seconds = steps_s_,
                                                                     .ranks_here = are_on_one_host ? job_.size() : 1,
                                                                     .threads = job_.pool().size(),
                                                                     .disk_bytes_per_s = disk_bytes_per_s_});
  if (missed.empty()) return;
  TRIREME_LOG(kWarn, "train", "{}", missed);
  report.facts.emplace_back("Prediction", missed);
}

std::vector<std::pair<std::string, std::string>> Run::headline(const Recorder& recorder) const {
  std::vector<std::pair<std::string, std::string>> out;
  if (result_.step > first_) out.emplace_back("Training loss", fmt::format("{:.4f}", result_.loss));
  const bool has_validated = validated_ >= 0;
  if (has_validated) out.emplace_back("Validation loss", fmt::format("{:.4f}", result_.validation_loss));
  if (has_validated && options_.step.accuracy)
    out.emplace_back("Accuracy", fmt::format("{:.2f} %", 100 * result_.accuracy));
  out.emplace_back("Throughput", fmt::format("{} {}/s", compact_number(recorder.mean_units_per_s()), options_.unit));
  if (result_.best_step >= 0 && (fit_.keep_best || fit_.patience > 0)) {
    const bool loss = fit_.measure == Measure::kLoss;
    out.emplace_back(
        loss ? "Best validation loss" : "Best accuracy",
        fmt::format("{} at step {}",
                    loss ? fmt::format("{:.4f}", result_.best) : fmt::format("{:.2f} %", 100 * result_.best),
                    result_.best_step));
  }
  return out;
}

void Run::finish(Recorder& recorder, double total_s, const std::string& failure) {
  if (job_.rank() != 0) return;
  const int64_t steps = std::max<int64_t>(1, result_.step - first_);
  ReportData report;
  report.title = options_.step.name;
  report.summary =
      fmt::format("{} of {} steps on {} rank{}", result_.step, total_, job_.size(), job_.size() == 1 ? "" : "s");
  if (!failure.empty()) report.summary += "; then it failed: " + failure;
  report.headline = headline(recorder);
  report.facts = facts();
  if (job_.size() > 1 && failure.empty()) {
    report.facts.emplace_back("Communication", trireme::to_string(result_.communication));
    report.facts.emplace_back(
        "Exposed communication",
        fmt::format("{:.1f} % of a step", 100 * communication_.exposed_s / std::max(1e-9, steps_s_)));
  }
  if (peak_flops_per_s_ > 0 && steps_s_ > 0) {
    report.facts.emplace_back(
        "Model FLOPs utilisation",
        fmt::format("{:.1f} % of the {:.0f} GFLOP/s at which all ranks multiply and add in {}", 100 * utilisation(),
                    peak_flops_per_s_ / 1e9, trireme::to_string(options_.step.compute)));
  }
  if (timeline_) {
    const Timeline modelled = modelled_timeline(session_.compiled());
    report.headline.emplace_back("Bubble", fmt::format("{:.1f} %", 100 * timeline_->bubble()));
    report.timeline = timeline_chart(modelled, *timeline_);
  }
  if (failure.empty()) add_missed_prediction(report);
  add_memory(session_.compiled(), report);
  report.hidden_comm_ms = communication_.hidden_s() * 1e3 / static_cast<double>(steps);
  report.time = time_by_op(session_.step().times(), data_s_, steps_s_, steps);
  report.run_time = {{fmt::format("{} step{}", steps, steps == 1 ? "" : "s"), steps_s_}};
  if (evaluations_s_ > 0) report.run_time.emplace_back("validation", evaluations_s_);
  if (saves_s_ > 0) report.run_time.emplace_back("checkpoints", saves_s_);
  if (options_.sample && failure.empty() && !result_.interrupted && (are_whole() || !result_.checkpoint.empty()) &&
      sample_is_quick()) {
    const double begin_s = now_s();
    report.samples = {{"", options_.sample(parameters())}};
    report.run_time.emplace_back("the sample at the end", now_s() - begin_s);
  }
  report.run_time.emplace_back("between them", std::max(0.0, total_s - steps_s_ - evaluations_s_ - saves_s_));
  try {
    result_.report = recorder.finish(std::move(report));
  } catch (const Error& e) {
    TRIREME_LOG(kWarn, "train", "the report of this {}run cannot be written: {}", failure.empty() ? "" : "failed ",
                e.text());
  }
}

}  // namespace trireme
