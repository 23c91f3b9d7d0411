// Recorder: everything that a run writes for its user, on rank 0: the progress bar, metrics.jsonl, TensorBoard events,
// and at the end report.html.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/exec/run/executor.h"
#include "trireme/train/report/progress.h"
#include "trireme/train/report/report.h"
#include "trireme/train/report/run_log.h"
#include "trireme/train/report/tensorboard.h"

namespace trireme {

struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = -1;  // negative: not computed
  double seconds = 0;
  CommunicationTime communication = {};  // of this rank
};

class Recorder {
 public:
  struct Options {
    std::string out;  // "": no files
    bool progress = true;
    int64_t total_steps = 0;
    int64_t resume_step = -1;
    double units_per_step = 1;
    std::string unit = "samples";
    bool communicates = false;  // the job has several ranks
  };
  explicit Recorder(const Options& options);

  void step(const StepRecord& record);
  void validation(int64_t step, double loss, double accuracy);  // negative accuracy: none
  // What was recorded is in its files: before a checkpoint is saved, since a run that goes on from it does not do these
  // steps again.
  void flush();
  double mean_units_per_s() const;

  // Adds the series to the rest of the report and writes it; returns its path, "" without `out`. kIo when the disk is
  // full.
  std::string finish(ReportData report);

 private:
  // What cannot be written, as on a full disk, is logged once and waits for the next time: curves are no reason to lose
  // a training.
  void write(const std::function<void()>& what);
  void scalar(std::string_view tag, double value, int64_t step);  // for TensorBoard
  void take_up(const std::string& metrics);  // the curves of the run until it was resumed, for the report

  Options options_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<RunLog> log_;
  std::unique_ptr<TensorboardWriter> board_;
  bool is_told_ = false;  // that something is not written
  ProgressState state_;
  double smooth_s_ = 0;
  double total_s_ = 0;
  int64_t steps_ = 0;
  std::vector<StepRecord> records_;
  std::vector<ChartPoint> validation_;
};

// Seconds by op, largest first, the rest under "other ops"; communication and data beside them; per step. `steps_s` is
// what all steps took: neither validation nor saving is part of a step.
std::vector<ReportData::Time> time_by_op(const std::vector<ActionTime>& times, double data_s, double steps_s,
                                         int64_t steps);
std::vector<ReportData::Memory> memory_by_holding(const ExecutionPlan& plan);

}  // namespace trireme
