#include "trireme/train/run_impl.h"

#include <algorithm>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/precision.h"

namespace trireme {

void Run::start() {
  if (job_.rank() == 0) {
    log_slow_products(options_.compute);
    log_ignored_requests();
    if (!options_.save_strategy.empty()) write_strategy();
    if (const auto& rates = session_.compiled().measured; rates && !options_.out.empty()) {
      disk().make_directory(options_.out);
      atomic_write(join_path(options_.out, "rates.toml"), trireme::to_string(*rates));
    }
  }
  const std::string root = checkpoints();
  const bool restarted = flag_int("TRIREME_RESTART_COUNT", 0, 1'000'000).value_or(0) > 0;
  const bool may_restart = flag_int("TRIREME_RESTARTS", 0, 1'000'000).value_or(0) > 0;
  const bool goes_on = (fit_.resume || restarted) && !options_.out.empty();
  if (goes_on) agree_on_checkpoint(root);
  if (goes_on && ckpt::find_latest(root)) {
    const ckpt::Reader reader(root);
    result_.checkpoint = reader.path();
    result_.step = first_ = reader.step();
    require(reader.seed() == options_.seed,
            "the checkpoint '{}' was made with seed {}, this run has seed {}; go on with the same seed", reader.path(),
            reader.seed(), options_.seed);
    require(reader.data_position() == first_ * fit_.batch,
            "the checkpoint '{}' is at sample {} after {} steps, a batch of {}; this run's batch is {}", reader.path(),
            reader.data_position(), first_, first_ > 0 ? reader.data_position() / first_ : 0, fit_.batch);
    result_.nothing_left = first_ >= total_;
    if (result_.nothing_left) return;
    load(reader);
    TRIREME_LOG(kInfo, "train", "resumed at step {} from '{}'", first_, reader.path());
  } else {
    session_.initialise();
    // Whoever starts this job again must find only checkpoints of its own.
    if (may_restart && !restarted && !options_.out.empty()) move_earlier_run_away();
  }
  if (job_.world()) job_.world()->all().barrier().wait();
  const double expected_s = expected_seconds();
  if (options_.on_start && job_.rank() == 0) {
    options_.on_start(session_, {.first_step = first_, .last_step = total_, .data = describe_data(),
                                 .expected_s = expected_s});
  }
}

void Run::agree_on_checkpoint(const std::string& root) {
  if (!job_.world()) return;
  const auto found = ckpt::find_latest(root);
  const std::string mine = found ? std::to_string(ckpt::Reader(root).step()) : "-";
  const std::vector<std::string> all = gather_texts(*job_.world(), mine);
  const auto other = std::ranges::find_if(all, [&](const std::string& step) { return step != mine; });
  const auto text = [](const std::string& step) { return step == "-" ? std::string("none") : "that of step " + step; };
  require(other == all.end(),
          "the newest checkpoint that rank {} finds in '{}' is {}, but rank {} finds {}; the folder must be on a disk that all "
          "ranks see", job_.rank(), root, text(mine), other - all.begin(), other == all.end() ? "" : text(*other));
}

void Run::load(const ckpt::Reader& reader) {
  try {
    load_session(session_, reader);
  } catch (Error& e) {
    const std::vector<ckpt::Found> found = ckpt::list_checkpoints(checkpoints()).complete;
    if (e.kind() == ErrorKind::kCorrupt) {
      e.note(found.size() > 1 ? fmt::format("move '{}' away to go on from '{}'", reader.path(), found[found.size() - 2].path)
                              : std::string("there is no earlier checkpoint; start again without resuming"));
    } else if (e.kind() == ErrorKind::kNotFound || e.kind() == ErrorKind::kInvalidArgument) {
      e.note("a run goes on with the model and the optimizer it was started with");
    }
    throw;
  }
}

double Run::expected_seconds() {
  if (!session_.has_evaluation()) return 0;
  Executor& executor = session_.evaluation();
  double pass_s = 0;
  for (int i = 0; i < 2; ++i) {  // the first warms up
    for (const BatchField& field : batch_fields(*fit_.validation, evaluation_batch())) {
      const View view = executor.input(field.name);
      std::fill(view.raw().begin(), view.raw().end(), std::byte{0});
    }
    const double begin_s = now_s();
    executor.run();
    pass_s = now_s() - begin_s;
  }
  const double of_a_step = 3 * pass_s * static_cast<double>(fit_.batch) / static_cast<double>(evaluation_batch());
  return of_a_step * static_cast<double>(total_ - first_);
}

std::string Run::describe_data() const {
  return fmt::format("{} samples to train on, {} held out", train_->size(),
                     fit_.validation ? fit_.validation->size() : 0);
}

void Run::write_strategy() const {
  const Compiled& made = session_.compiled();
  atomic_write(options_.save_strategy, options_.only_trained_parameters
                                           ? trained_parameters_to_string(made.graph, made.strategy)
                                           : trireme::to_string(made.graph, made.strategy));
  TRIREME_LOG(kInfo, "train", "wrote the strategy to '{}'", options_.save_strategy);
}

void Run::log_ignored_requests() const {
  const std::vector<ShardRequest>& asked = session_.compiled().graph.shard_requests();
  if (options_.mode != Mode::kDataParallel || asked.empty()) return;
  TRIREME_LOG(kWarn, "train", "mode data_parallel: shard() is ignored, of {} modules, the first '{}'",
              asked.size(), asked.front().scope);
}

}  // namespace trireme
