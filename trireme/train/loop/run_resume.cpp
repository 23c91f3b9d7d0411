// The beginning of a run: first values, a warm start or the checkpoint it goes on from (run_impl.h).
#include "trireme/base/counted.h"
#include "trireme/base/joined_text.h"
#include "trireme/train/loop/run_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/ckpt/retention.h"
#include "trireme/parallel/strategy/strategy_json.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/checkpoints/warm_start.h"
#include "trireme/train/job/same_job.h"
#include "trireme/train/step/compile/slow_products.h"

namespace trireme {
namespace {

constexpr double kSeenAfterS = 5;

// What a damaged file or disk makes, in contrast to a checkpoint of another job.
bool is_of_the_disk(const Error& e) {
  return e.kind() == ErrorKind::kCorrupt || e.kind() == ErrorKind::kIo;
}

}  // namespace

void Run::start() {
  agree_on_folder();
  if (job_.rank() == 0) {
    log_slow_products(session_.device(), options_.step.compute);
    log_ignored_requests();
    log_without_effect();
    if (!options_.trace.empty()) require_place_for(options_.trace, "train.trace");  // written after some steps
    if (!options_.save_strategy.empty()) write_strategy();
  }
  log_unlike_processors();
  const bool restarted = flag_int("TRIREME_RESTART_COUNT", 0, 1'000'000).value_or(0) > 0;
  const bool goes_on = (fit_.resume || restarted) && !options_.out.empty();
  if (!goes_on || !resume()) {
    if (fit_.resume && !restarted && job_.rank() == 0) {
      TRIREME_LOG(kWarn, "train", "nothing to resume: {}; training begins anew",
                  options_.out.empty() ? "the trainer's options name no folder (out)"
                                       : fmt::format("there is no checkpoint in '{}'", checkpoints()));
    }
    session_.initialise();
    if (!fit_.init_from.empty()) warm_start();
    // What lies in the folder when a job starts again is its own.
    if (!restarted && !options_.out.empty()) move_earlier_run_away();
  }
  if (result_.nothing_left) return;
  if (const auto& rates = session_.compiled().measured; rates && !options_.out.empty() && job_.rank() == 0) {
    disk().make_directory(options_.out);
    atomic_write(join_path(options_.out, "rates.toml"), trireme::to_string(*rates));
  }
  if (job_.world()) job_.world()->all().barrier().wait();
  const double expected_s = expected_seconds();
  if (options_.on_start && job_.rank() == 0) {
    options_.on_start(session_,
                      {.first_step = first_, .last_step = total_, .data = describe_data(), .expected_s = expected_s});
  }
}

bool Run::resume() {
  const std::string root = checkpoints();
  const ckpt::Listing found = ckpt::list_checkpoints(root);
  std::vector<std::string> damaged;
  const auto pass_over = [&](const std::string& why) {
    damaged.push_back(why);
    if (job_.rank() == 0) TRIREME_LOG(kWarn, "ckpt", "{}", why);
  };
  for (const std::string& note : found.notes) pass_over(note);
  for (size_t left = found.complete.size();; --left) {
    agree_on_checkpoint(left > 0 ? std::to_string(found.complete[left - 1].step) : "-");
    if (left == 0) break;
    const ckpt::Found& newest = found.complete[left - 1];
    const std::string why = load(newest.path);
    if (why.empty()) {
      if (job_.rank() == 0 && !damaged.empty()) set_damaged_aside(newest);
      if (job_.rank() == 0) TRIREME_LOG(kInfo, "train", "resumed at step {} from '{}'", first_, newest.path);
      return true;
    }
    pass_over(why);
  }
  if (found.complete.empty()) return false;  // a save that was cut short is no more than no save
  Error error(ErrorKind::kCorrupt,
              fmt::format("none of the checkpoints in '{}' can be read; start again without resuming", root));
  for (const std::string& why : damaged) error.note(why);
  throw error;
}

std::string Run::first_of_ranks(const std::string& mine) const {
  if (!job_.world()) return mine;
  const std::vector<std::string> all = gather_texts(*job_.world(), mine);
  const auto first = std::ranges::find_if(all, [](const std::string& text) { return !text.empty(); });
  return first == all.end() ? "" : *first;
}

void Run::warm_start() {
  const std::unique_ptr<ckpt::TensorSource> source = warm_start_source(fit_.init_from);
  const WarmStart taken = start_from(session_, *source, fit_.init_except);
  const std::string not_finite = first_of_ranks(joined_text(taken.not_finite, ", "));
  require(not_finite.empty(),
          "train.init_from: {} has NaN or infinite values in {}, from which no step would be finite; take other "
          "weights, or name what is to begin anew in train.init_except",
          source->text(), not_finite);
  if (job_.rank() != 0) return;
  const auto listed = [](const char* what, const std::vector<std::string>& names) {
    return names.empty() ? "" : fmt::format("; {}: {}", what, joined_text(names, ", "));
  };
  const auto converted = static_cast<int64_t>(taken.converted);
  const std::string what =
      fmt::format("{} begin as in {}{}{}{}", counted(static_cast<int64_t>(taken.taken), "tensor"), source->text(),
                  converted > 0 ? fmt::format("; {} of another element type, converted", converted) : "",
                  listed("anew", taken.anew), listed("left out", taken.left_out));
  if (taken.anew.empty() && taken.left_out.empty()) {
    TRIREME_LOG(kInfo, "train", "{}", what);
  } else {
    TRIREME_LOG(kWarn, "train", "{}", what);
  }
}

// Otherwise ranks whose folders are on different disks would notice when the first checkpoint is saved. A disk of the
// network may take a moment to show what another host has written.
void Run::agree_on_folder() const {
  if (!job_.world() || options_.out.empty()) return;
  const std::string written = gather_texts(*job_.world(), RunLock::text_in(options_.out))[0];
  const double begin_s = now_s();
  while (RunLock::text_in(options_.out) != written && now_s() - begin_s < kSeenAfterS)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const bool seen = RunLock::text_in(options_.out) == written;
  const std::string other =
      first_of_ranks(seen ? "" : fmt::format("rank {} does not find in '{}'", job_.rank(), options_.out));
  require(other.empty(), "{} what rank 0 has written there (job.lock): the folder must be on a disk that all ranks see",
          other);
}

// Ranks whose folders are on different disks would go on from different steps. `mine`: the step this rank finds, "-":
// none.
void Run::agree_on_checkpoint(const std::string& mine) {
  if (!job_.world()) return;
  const std::vector<std::string> all = gather_texts(*job_.world(), mine);
  const auto other = std::ranges::find_if(all, [&](const std::string& step) { return step != mine; });
  const auto text = [](const std::string& step) { return step == "-" ? std::string("none") : "that of step " + step; };
  require(other == all.end(),
          "the newest checkpoint that rank {} finds in '{}' is {}, but rank {} finds {}; the folder must be on a disk "
          "that all "
          "ranks see",
          job_.rank(), checkpoints(), text(mine), other - all.begin(), other == all.end() ? "" : text(*other));
}

std::string Run::load(const std::string& path) {
  std::string wrong;
  try {
    const ckpt::Reader reader(path);
    check_goes_on(reader);
    load_session(session_, reader);
    result_.checkpoint = reader.path();
    result_.step = first_ = saved_ = reader.step();
    take_up_progress(reader);
    result_.stopped_early = is_over();
    result_.nothing_left = first_ >= total_ || result_.stopped_early;
  } catch (Error& e) {
    if (!is_of_the_disk(e)) {
      e.note("a run goes on with the model and the optimizer it was started with");
      throw;
    }
    wrong = e.text();
  }
  return first_of_ranks(wrong);
}

void Run::check_goes_on(const ckpt::Reader& reader) const {
  const std::vector<std::string> changes = check_same_job(reader.meta(), identity_, reader.path());
  require(reader.seed() == options_.step.seed,
          "the checkpoint '{}' was made with seed {}, this run has seed {}; go on with the same seed", reader.path(),
          reader.seed(), options_.step.seed);
  const int64_t step = reader.step();
  require(reader.data_position() == step * fit_.batch,
          "the checkpoint '{}' is at sample {} after {} steps, a batch of {}; this run's batch is {}", reader.path(),
          reader.data_position(), step, step > 0 ? reader.data_position() / step : 0, fit_.batch);
  for (const std::string& change : changes) {
    if (job_.rank() == 0) TRIREME_LOG(kWarn, "train", "going on from '{}' with {}", reader.path(), change);
  }
}

// What is newer than the checkpoint that the run goes on from cannot be read: it must not be counted among those that
// are kept.
void Run::set_damaged_aside(const ckpt::Found& newest) {
  const auto chosen = ckpt::parse_step_name(base_name(newest.path));
  for (const std::string& text : list_directory(checkpoints())) {
    const auto name = ckpt::parse_step_name(text);
    const std::string path = join_path(checkpoints(), text);
    if (!name || *name <= *chosen || !is_file(join_path(path, ckpt::kCommitName))) continue;
    set_aside(path, "damaged");
  }
  link("latest", newest.path);
}

double Run::expected_seconds() {
  if (!session_.has_evaluation()) return 0;
  Executor& executor = session_.evaluation();
  double pass_s = 0;
  for (int i = 0; i < 2; ++i) {  // the first warms up
    fill_fields(executor, batch_fields(*fit_.validation, evaluation_batch()), [](std::span<const View> views) {
      for (const View& view : views) std::ranges::fill(view.raw(), std::byte{0});
    });
    const double begin_s = now_s();
    executor.run();
    pass_s = now_s() - begin_s;
  }
  const double of_a_step = 3 * pass_s * static_cast<double>(fit_.batch) / static_cast<double>(evaluation_batch());
  return of_a_step * static_cast<double>(total_ - first_);
}

std::string Run::describe_data() const {
  return fmt::format("{} to train on, {} held out", counted(train_->size(), "sample"),
                     fit_.validation ? fit_.validation->size() : 0);
}

void Run::write_strategy() const {
  const Compiled& made = session_.compiled();
  const std::string text = options_.only_trained_parameters ? trained_parameters_to_string(made.graph, made.strategy)
                                                            : strategy_file(made.graph, made.strategy);
  require_place_for(options_.save_strategy, "parallel.save_strategy");
  atomic_write(options_.save_strategy, options_.save_strategy.ends_with(".json") ? strategy_to_json(text) : text);
  TRIREME_LOG(kInfo, "train", "wrote the strategy to '{}'", options_.save_strategy);
}

void Run::log_ignored_requests() const {
  const Graph& graph = session_.compiled().graph;
  if (!graph.stage_requests().empty() && session_.compiled().crews.size() == 1) {
    TRIREME_LOG(kWarn, "train",
                "pipeline_stage() is ignored, of {}, the first '{}': the ranks are one crew; give them "
                "more by parallel.pipeline.crews (parallel.pp of a job)",
                counted(static_cast<int64_t>(graph.stage_requests().size()), "module"),
                graph.stage_requests().front().scope);
  }
  const std::vector<ShardRequest>& asked = graph.shard_requests();
  if (options_.mode == Mode::kDataParallel && !asked.empty()) {
    TRIREME_LOG(kWarn, "train", "mode data_parallel: shard() is ignored, of {} modules, the first '{}'", asked.size(),
                asked.front().scope);
  }
  const auto own = std::ranges::find_if(graph.inputs(), [](const Input& input) { return !input.piece.empty(); });
  const bool is_cut = options_.mode == Mode::kSemiAuto || options_.mode == Mode::kAuto;
  if (!is_cut || (own == graph.inputs().end() && options_.parallel.layerwise.empty())) return;
  TRIREME_LOG(kWarn, "train",
              "mode {}: layerwise parameters are ignored, the first '{}': the compiler cuts the model; use "
              "hybrid_parallel or data_parallel",
              to_string(options_.mode),
              own == graph.inputs().end() ? options_.parallel.layerwise.front().pattern : own->name);
}

}  // namespace trireme
