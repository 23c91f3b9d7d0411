#include "trireme/train/run_impl.h"

#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/train/checkpointing.h"

namespace trireme {

std::string Run::checkpoints() const { return options_.out + "/checkpoints"; }

void Run::move_earlier_run_away() {
  moved_ = true;
  const std::string root = checkpoints();
  if (job_.rank() == 0 && is_directory(root)) {
    int number = 1;
    while (is_directory(fmt::format("{}.{}", root, number))) ++number;
    disk().rename(root, fmt::format("{}.{}", root, number));
    TRIREME_LOG(kWarn, "train", "'{}' held the checkpoints of an earlier run; they are now in '{}.{}', where they stay", root, root,
                number);
  }
  if (job_.world()) job_.world()->all().barrier().wait();
}

void Run::save() {
  if (first_ == 0 && !moved_) move_earlier_run_away();
  result_.checkpoint = save_session(session_, job_.world(),
                                    {.root = checkpoints(),
                                     .step = result_.step,
                                     .seed = options_.seed,
                                     .data_position = result_.step * fit_.batch,
                                     .keep = fit_.keep,
                                     .meta = {{"name", options_.name}, {"config", options_.config_text}}});
}

void Run::say_saved() const {
  if (options_.out.empty()) {
    TRIREME_LOG(kWarn, "train", "SIGUSR1 asks to save, but this run has no folder to save to");
  } else {
    TRIREME_LOG(kInfo, "train", "saved '{}', as SIGUSR1 asked", result_.checkpoint);
  }
}

}  // namespace trireme
