// The checkpoints of a run, and which of them stay (run_impl.h).
#include "trireme/train/loop/run_impl.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/ckpt/export_weights.h"
#include "trireme/ckpt/retention.h"
#include "trireme/train/checkpoints/checkpointing.h"

namespace trireme {
namespace {

constexpr const char* kMergedName = "model.safetensors";

// What a run writes into its folder, but for the logs of its ranks, which the launcher opens before any of them starts.
constexpr const char* kFilesOfRun[] = {"checkpoints", "metrics.jsonl", "tensorboard",
                                       "report.html", "rates.toml",    kMergedName};

constexpr const char* kBestLink = "best";
constexpr const char* kJobName = "job.name";  // of the job whose run lies in the folder

// "": there is no such link.
std::string link_target(const std::string& link) {
  std::error_code code;
  return std::filesystem::read_symlink(link, code).string();
}

bool exists(const std::string& path) {
  return is_file(path) || is_directory(path);
}

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

}  // namespace

std::string Run::checkpoints() const {
  return options_.out + "/checkpoints";
}

void Run::move_earlier_run_away() {
  if (job_.rank() != 0) return;
  const auto path = [&](const char* file) { return join_path(options_.out, file); };
  if (std::ranges::none_of(kFilesOfRun, [&](const char* file) { return exists(path(file)); })) return;
  int number = 1;
  while (exists(fmt::format("{}/earlier-{}", options_.out, number))) ++number;
  const std::string to = fmt::format("{}/earlier-{}", options_.out, number);
  disk().make_directory(to);
  for (const char* file : kFilesOfRun) {
    if (exists(path(file))) disk().rename(path(file), join_path(to, file));
  }
  if (is_file(path(kJobName))) disk().rename(path(kJobName), join_path(to, kJobName));
  TRIREME_LOG(kWarn, "train",
              "'{}' held an earlier run; its curves, report and checkpoints are now in '{}', where they stay",
              options_.out, to);
}

void Run::take_folder() {
  if (job_.rank() != 0) return;
  const std::string note = join_path(options_.out, kJobName);
  if (const auto job = flag_text("TRIREME_JOB")) {
    disk().make_directory(options_.out);
    if (!is_file(note) || read_file(note) != *job) atomic_write(note, *job);
  } else if (is_file(note)) {
    disk().remove(note);
  }
}

bool Run::is_of_this_job() {
  const auto job = flag_text("TRIREME_JOB");
  const std::string note = join_path(options_.out, kJobName);
  return any_rank(job_.world(), job_.rank() == 0 && job && is_file(note) && read_file(note) == *job);
}

bool Run::parameters_are_finite() {
  const bool finite = std::ranges::all_of(session_.persistent(), [&](const PlanInput& input) {
    if (input.role != Role::kParameter || session_.step().input(input.name).type.dtype != DType::kF32) return true;
    return all_finite(session_.step().borrow_input(input.name).as<float>());
  });
  return !any_rank(job_.world(), !finite);
}

// The best so far; where this run keeps none, that of the run it goes on from, whose link would point to nothing.
std::vector<int64_t> Run::kept_besides() const {
  if (fit_.keep_best && result_.best_step >= 0) return {result_.best_step};
  const std::string linked = link_target(join_path(checkpoints(), kBestLink));
  if (linked.empty()) return {};
  for (const ckpt::Found& each : ckpt::list_checkpoints(checkpoints()).complete) {
    if (base_name(each.path) == linked) return {each.step};
  }
  return {};
}

// A run before that did not keep the best may have pruned it, or have no link to it.
void Run::take_up_best() {
  if (!fit_.keep_best || result_.best_step < 0) return;
  const ckpt::Listing listing = ckpt::list_checkpoints(checkpoints());
  const auto found = std::ranges::find(listing.complete, result_.best_step, &ckpt::Found::step);
  if (found != listing.complete.end()) {
    if (job_.rank() == 0) link(kBestLink, found->path);
    return;
  }
  if (job_.rank() == 0) {
    TRIREME_LOG(kWarn, "train",
                "the best validation so far was at step {}, of which there is no checkpoint: the next one is the best "
                "to keep",
                result_.best_step);
  }
  result_.best_step = -1;
  stale_ = 0;
}

void Run::save() {
  const double begin_s = now_s();
  if (!parameters_are_finite()) {
    fail_not_finite(fmt::format("the parameters are no longer finite after step {}, which is not saved", result_.step),
                    result_.step);
  }
  std::vector<int64_t> keep_steps = kept_besides();
  if (saved_ >= 0) keep_steps.push_back(saved_);  // until a step from the new one has come out finite
  std::map<std::string, std::string> meta = progress_as_text();
  meta.insert(identity_.begin(), identity_.end());
  result_.checkpoint = save_session(session_, job_.world(),
                                    {.root = checkpoints(),
                                     .step = result_.step,
                                     .seed = options_.step.seed,
                                     .data_position = result_.step * fit_.batch,
                                     .keep = fit_.keep,
                                     .keep_steps = keep_steps,
                                     .meta = std::move(meta)});
  saved_ = result_.step;
  saved_at_s_ = now_s();
  if (job_.rank() == 0 && fit_.merged_save) write_merged();
  if (job_.rank() == 0 && fit_.keep_best && result_.best_step == result_.step) {
    link(kBestLink, result_.checkpoint);
  }
  unproven_ = fit_.keep == 1;  // with more, the one before stays anyway
  saves_s_ += now_s() - begin_s;
}

void Run::write_merged() const {
  const ckpt::Reader reader(result_.checkpoint);
  ckpt::export_weights(reader, join_path(options_.out, kMergedName), {.metadata = ckpt::metadata_of(reader)});
}

void Run::prune() {
  unproven_ = false;
  if (job_.rank() != 0) return;
  for (const std::string& note : ckpt::prune(checkpoints(), {fit_.keep, kept_besides()}))
    TRIREME_LOG(kWarn, "ckpt", "{}", note);
}

void Run::link(const std::string& name, const std::string& checkpoint) const {
  try {
    ckpt::link_to(checkpoints(), name, base_name(checkpoint));
  } catch (const Error& e) {
    TRIREME_LOG(kWarn, "ckpt", "{}", e.text());
  }
}

void Run::set_aside(const std::string& path, std::string_view why) {
  try {
    const std::string to = ckpt::set_aside(path, why);
    TRIREME_LOG(kWarn, "ckpt", "'{}' is now '{}'; no run goes on from it", path, to);
  } catch (const Error& e) {
    TRIREME_LOG(kWarn, "ckpt", "{}", e.text());
  }
}

void Run::say_saved() const {
  if (options_.out.empty()) {
    TRIREME_LOG(kWarn, "train", "SIGUSR1 asks to save, but this run has no folder to save to");
  } else {
    TRIREME_LOG(kInfo, "train", "saved '{}', as SIGUSR1 asked", result_.checkpoint);
  }
}

}  // namespace trireme
