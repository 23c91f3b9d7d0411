// How long a training goes on, when it validates and saves, and what it gives back.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/data/source.h"
#include "trireme/train/report/communication_summary.h"

namespace trireme {

// What of a validation says whether a run gets better.
enum class Measure { kLoss, kAccuracy };

struct FitOptions {
  int64_t epochs = 0;  // passes over the training samples; or
  int64_t steps = 0;   // steps, if not 0
  int64_t batch = 32;  // samples of a step over all ranks
  data::SourcePtr validation = nullptr;
  int64_t eval_every = 0;            // steps; 0: at the end only
  int64_t eval_batches = 0;          // of a validation; 0: all of the validation set
  int64_t eval_batch = 0;            // samples of a batch of the validation over all ranks; 0: as in training
  int64_t save_every = 0;            // steps; 0: at the end only
  double save_every_minutes = 0;     // besides, by the clock of the first rank; 0: never
  int keep = 2;                      // checkpoints
  Measure measure = Measure::kLoss;  // of the next three
  bool keep_best = false;      // what a validation finds better than all before is saved and stays, besides `keep`
  int64_t patience = 0;        // validations in a row that find nothing better after which the run ends; 0: it goes on
  double min_improvement = 0;  // less is not better
  bool merged_save = false;    // each checkpoint is also written as one file of whole tensors, `out`/model.safetensors
  bool resume = false;         // go on from the newest checkpoint in `out`
};

// Samples of a batch of the validation.
inline int64_t evaluation_batch_of(const FitOptions& fit) {
  return fit.eval_batch > 0 ? fit.eval_batch : fit.batch;
}

struct FitResult {
  int64_t step = 0;  // the last done
  double loss = 0;   // of the last step
  double validation_loss = 0;
  double accuracy = 0;        // of the validation set, in [0, 1]
  bool nothing_left = false;  // the checkpoint resumed from is at the last step, or beyond
  bool interrupted = false;   // a signal asked to stop before the last step; the run is saved and can be resumed
  int signal = 0;             // that asked to stop, the last step done or not; 0: none
  int exit_code() const { return signal == 0 ? 0 : 128 + signal; }  // what the program should end with
  std::string checkpoint;                                           // the newest one's folder
  bool stopped_early = false;  // after `patience` validations; nothing_left says so too where it was before this call
  int64_t best_step = -1;      // of the validation that found the best; -1: none has been
  double best = 0;             // its loss or accuracy
  std::string report;          // report.html's path
  CommunicationSummary communication = {};  // of a mean step
};

}  // namespace trireme
