// One call of Trainer::fit: its session, its feed, its records. What each part of it does stands in a file of its own:
// run.cpp has the loop, run_graphs.cpp what is compiled, run_resume.cpp the beginning, run_evaluate.cpp validation,
// run_save.cpp checkpoints, and run_finish.cpp the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/feed.h"
#include "trireme/train/job.h"
#include "trireme/train/recorder.h"
#include "trireme/train/session.h"
#include "trireme/train/trainer.h"

namespace trireme {

class Run {
 public:
  Run(const ModelFn& model, const LossFn& loss, const Optimizer& optimizer, const TrainerOptions& options,
      const data::SourcePtr& train, const FitOptions& fit, Job& job);
  FitResult run();

 private:
  static int64_t steps_of(const data::Source& train, const FitOptions& fit);
  data::BatchOptions batch_options();
  void train_step(Feed& feed, Recorder& recorder);

  // Starting values, or those of the newest checkpoint.
  void start();
  // Ranks whose folders are on different disks would go on from different steps.
  void agree_on_checkpoint(const std::string& root);
  void load(const ckpt::Reader& reader);
  void write_strategy() const;
  void log_ignored_requests() const;
  // A step takes about three forward passes: one forward, two back. 0: there is nothing to time without changing it.
  double expected_seconds();
  std::string describe_data() const;

  int64_t evaluation_batch() const;
  void evaluate(Recorder& recorder);

  std::string checkpoints() const;
  // A run that starts from the beginning must not go on from, or be pruned among, the checkpoints of one before it. Those stay:
  // how many are kept is said of a run, and what another one trained is not this one's to remove.
  void move_earlier_run_away();
  void save();
  void say_saved() const;  // to who asked by a signal

  // Whether this rank has all of every parameter.
  bool are_whole();
  // The trained parameters; where ranks have pieces of them, from the checkpoint.
  std::function<View(std::string_view)> parameters();
  void summarise_communication();
  void finish(Recorder& recorder, double total_s);

  const TrainerOptions& options_;
  const FitOptions& fit_;
  Job& job_;
  const Optimizer& optimizer_;
  data::SourcePtr train_;
  std::vector<BatchField> fields_;
  int64_t total_;
  Session session_;
  int64_t first_ = 0;
  bool moved_ = false;  // what an earlier run left, if anything
  double data_s_ = 0;
  CommunicationTime communication_;  // of this rank, over all steps
  FitResult result_;
};

}  // namespace trireme
