#include "trireme/train/loop/trainer.h"

#include "trireme/base/error.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/job/same_on_ranks.h"
#include "trireme/train/loop/run_impl.h"

namespace trireme {

Trainer::Trainer(ModelFn model, LossFn loss, Optimizer optimizer, TrainerOptions options)
    : model_(std::move(model)),
      loss_(std::move(loss)),
      optimizer_(std::move(optimizer)),
      options_(std::move(options)) {}
Trainer::~Trainer() = default;

FitResult Trainer::fit(const data::SourcePtr& train, const FitOptions& options) {
  Job& job = Job::current();
  require(options_.mode != Mode::kStandAlone || job.size() == 1,
          "mode stand_alone in a job of {} ranks; use data_parallel, or start one rank", job.size());
  if (job.world() != nullptr) {  // before work that a rank with other settings might not share
    const std::string unlike =
        unlike_settings(gather_texts(*job.world(), settings_text(optimizer_, options_, options, *train)));
    require(unlike.empty(), "{}", unlike);
  }
  check_options(optimizer_, options_, options);
  return Run(model_, loss_, optimizer_, options_, train, options, job).run();
}

}  // namespace trireme
