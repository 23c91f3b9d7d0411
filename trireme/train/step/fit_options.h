// How long a training run lasts, when it validates and when it saves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/data/source.h"

namespace trireme {

// What of a validation says whether a run gets better.
enum class Measure { kLoss, kAccuracy };

struct FitOptions {
  // One of these says how long: passes over the training samples, or steps; the other is 0.
  int64_t epochs = 0, steps = 0;
  int64_t batch = 32;  // samples of a step over all ranks
  data::SourcePtr validation = nullptr;
  int64_t eval_every = 0;            // steps; 0: at the end only
  int64_t eval_batches = 0;          // of a validation; 0: all of the validation set
  int64_t eval_batch = 0;            // samples of a batch of the validation over all ranks; 0: as in training
  int64_t save_every = 0;            // steps; 0: at the end only
  double save_every_minutes = 0;     // besides, by the clock of the first rank; 0: never
  int64_t keep = 2;                  // checkpoints
  Measure measure = Measure::kLoss;  // of the next three
  bool keep_best = false;      // what a validation finds better than all before is saved and stays, besides `keep`
  int64_t patience = 0;        // validations in a row that find nothing better after which the run ends; 0: it goes on
  double min_improvement = 0;  // less is not better
  bool merged_save = false;    // each checkpoint is also written as one file of whole tensors, `out`/model.safetensors
  bool resume = false;         // go on from the newest checkpoint in `out`
  // A warm start: parameters and buffers begin with the values that another job's checkpoint has under their names, at
  // step 0 and with new state of the optimizer (train/checkpoints/warm_start.h). A checkpoint's folder, a run's, or
  // that of its checkpoints, or a safetensors file of whole tensors; "": with values drawn anew.
  std::string init_from = {};
  // Patterns of names (base/words.h): what they name is not taken from there, and may be missing, be more or be of
  // another shape.
  std::vector<std::string> init_except = {};
};

// Samples of a batch of the validation.
inline int64_t evaluation_batch_of(const FitOptions& fit) {
  return fit.eval_batch > 0 ? fit.eval_batch : fit.batch;
}

// The section [train].
std::vector<Key> keys_of(FitOptions& fit);

}  // namespace trireme
