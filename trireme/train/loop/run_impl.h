// One call of Trainer::fit: its session, its feed, its records. What each part of it does stands in a file of its own:
// run.cpp has the loop, run_graphs.cpp what is compiled, run_resume.cpp the beginning, run_evaluate.cpp validation,
// run_save.cpp checkpoints, run_failure.cpp a loss that is no number, and run_finish.cpp the end.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/job/job.h"
#include "trireme/train/loop/feed.h"
#include "trireme/train/loop/fit_result.h"
#include "trireme/train/loop/interrupt.h"
#include "trireme/train/loop/run_lock.h"
#include "trireme/train/report/recorder.h"
#include "trireme/train/report/timeline.h"
#include "trireme/train/report/trace.h"
#include "trireme/train/step/assembly.h"
#include "trireme/train/step/fit_options.h"

namespace trireme {

// Whether any rank says so; all ranks get the same answer. Collective.
bool any_rank(comm::World* world, bool mine);

// What to tell of ranks with these processors (Device::processor); "" if they are all of one model.
std::string unlike_processors(const std::vector<std::string>& of_ranks);

// Throws kInvalidArgument for numbers with which no step could be finite, and for what goes by validations without any.
void check_options(const Optimizer& optimizer, const TrainerOptions& options, const FitOptions& fit);

class Run {
 public:
  Run(const ModelFn& model, const LossFn& loss, const Optimizer& optimizer, const TrainerOptions& options,
      const data::SourcePtr& train, const FitOptions& fit, Job& job);
  FitResult run();

 private:
  // Of rank 0, where anything is written: before the work of compiling, so that who comes second learns it soon.
  static std::optional<RunLock> lock_of(const TrainerOptions& options, const Job& job);
  static int64_t steps_of(const data::Source& train, const FitOptions& fit);
  data::BatchOptions batch_options();
  void train_step(Feed& feed, Recorder& recorder);
  // Logs, for those who compare it with `explain --stage traffic`, how many bytes this rank sends while `work` runs.
  void log_sent(const char* of, const std::function<void()>& work);

  void train(Feed& feed, Recorder& recorder, const InterruptGuard& interrupt);

  // Starting values, or those of the newest checkpoint.
  void start();
  // Goes on from the newest checkpoint that all ranks can read; false when there is none. Throws when all are damaged.
  bool resume();
  void agree_on_checkpoint(const std::string& mine);
  void agree_on_folder() const;
  void warm_start();  // from fit_.init_from
  // The first rank's text that is not empty, on all ranks.
  std::string first_of_ranks(const std::string& mine) const;
  // What is wrong with the checkpoint on disk, on the first rank that finds something; "": it is loaded.
  std::string load(const std::string& path);
  void check_goes_on(const ckpt::Reader& reader) const;
  void set_damaged_aside(const ckpt::Found& newest);
  void write_strategy() const;
  void log_ignored_requests() const;
  void log_without_effect() const;  // settings that go with others that are not set, and ranks that repeat others' work
  void log_loss_of_parts() const;
  void log_unlike_processors() const;  // called by all ranks
  // A step takes about three forward passes: one forward, two back. 0: there is nothing to time without changing it.
  double expected_seconds();
  std::string describe_data() const;

  int64_t evaluation_batch() const;
  void evaluate(Recorder& recorder);
  // Evaluates and judges; whether it is better.
  bool validate(Recorder& recorder);
  bool is_validation_due() const;  // by the step's number
  // Compares the last validation with the best so far; whether it is better.
  bool judge();
  double measured() const;  // by the last validation
  bool is_over() const;     // whether enough validations have found nothing better for the run to end
  std::map<std::string, std::string> progress_as_text() const;  // of `judge`, for a checkpoint
  void take_up_progress(const ckpt::Reader& reader);

  std::string checkpoints() const;
  // A run that starts from the beginning must not write over, go on from or be pruned among what one before it has
  // left. That stays: the number of checkpoints to keep is for one run, and what another run trained is not this one's
  // to remove.
  void move_earlier_run_away();
  // Notes whose run lies there, once nothing of another's is left that this one does not go on from: a job that fails
  // before that, and starts again, does not take the other's for its own.
  void take_folder();
  bool is_of_this_job();  // as it is noted; collective
  void save();
  void say_saved() const;  // to who asked by a signal
  bool parameters_are_finite();
  // Renames a checkpoint so that nothing goes on from it; what cannot be renamed is logged.
  void set_aside(const std::string& path, std::string_view why);
  std::vector<int64_t> kept_besides() const;  // steps whose checkpoints stay besides the newest
  void take_up_best();                        // of the run before
  void prune();
  void link(const std::string& name, const std::string& checkpoint) const;  // for people, beside the checkpoints
  void write_merged() const;

  // `what` has gone wrong because numbers have grown beyond all bounds; says what is left to go on from. The loss of
  // step `last_finite` was finite, that of the next is not known to be. Collective.
  [[noreturn]] void fail_not_finite(const std::string& what, int64_t last_finite);
  std::string find_good_checkpoint(int64_t last_finite);

  // Whether this rank has all of every parameter and of what else the model has without its optimizer.
  bool are_whole();
  // These, trained; where ranks have pieces of them, from the checkpoint.
  std::function<View(std::string_view)> parameters();
  bool sample_is_quick();  // so that it is worth its time; says when not
  void summarise_communication();
  double utilisation() const;  // of all ranks' peak by a mean step (train/report/utilisation.h)
  void add_missed_prediction(ReportData& report) const;  // (train/report/late_lane.h)
  // The report. `failure`: why the run ended before its last step, "": it did not.
  void finish(Recorder& recorder, double total_s, const std::string& failure = "");
  std::vector<std::pair<std::string, std::string>> facts() const;  // about the run, for the report
  std::vector<std::pair<std::string, std::string>> headline(const Recorder& recorder) const;

  const TrainerOptions& options_;
  const FitOptions& fit_;
  Job& job_;
  const Optimizer& optimizer_;
  data::SourcePtr train_;
  std::vector<BatchField> fields_;
  int64_t total_;
  std::optional<RunLock> lock_;
  Assembly assembly_;
  Session session_;
  std::map<std::string, std::string> identity_;  // kept in checkpoints (train/job/same_job.h)
  int64_t first_ = 0;
  int64_t stale_ = 0;             // validations since the best
  double saved_at_s_ = 0;         // when the newest checkpoint was made, or the steps began
  int64_t saved_ = -1;            // step of the newest checkpoint of this run; -1: none
  bool unproven_ = false;         // no step from it has been done yet
  int64_t validated_ = -1;        // the last step whose parameters were evaluated
  bool owes_validation_ = false;  // of the step it goes on from, which an interrupt came before
  double lr_ = 0;                 // of the last step
  double data_s_ = 0;
  std::optional<double> disk_bytes_per_s_;  // measured at the start, where values lie there and no machine is named
  double steps_s_ = 0;                      // of this run's steps, data_s_ in it; and what the run did beside them:
  double evaluations_s_ = 0;
  double saves_s_ = 0;
  CommunicationTime communication_;   // of this rank, over all steps
  std::optional<Timeline> timeline_;  // of a step of a pipeline, on rank 0
  double peak_flops_per_s_ = 0;       // of all ranks; 0: not measured
  FitResult result_;
};

}  // namespace trireme
