// Trainer: trains a model written for one device on all ranks of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trireme/data/source.h"
#include "trireme/nn/optimizer.h"
#include "trireme/pass/pipeline.h"
#include "trireme/plan/parallel.h"
#include "trireme/train/communication_summary.h"
#include "trireme/train/schedule.h"
#include "trireme/train/step.h"

namespace trireme {

// What of a validation says whether a run gets better.
enum class Measure { kLoss, kAccuracy };

enum class Mode {
  kStandAlone,    // one rank
  kDataParallel,  // each rank trains on its share of the batch
  kSemiAuto,      // as `parallel` says
  kHybrid,        // the model's code works on the ranks' pieces, with collectives of its own (docs/guide/04)
};

class Session;

// What is known when training begins.
struct StartInfo {
  int64_t first_step = 0;  // done before; the next one is the first of this run
  int64_t last_step = 0;
  std::string data;        // "1,234 samples to train on, 137 held out"
  double expected_s = 0;   // of the whole run, by the time of a forward pass; 0: not known
};

struct TrainerOptions {
  std::string name = "model";
  Mode mode = Mode::kDataParallel;
  uint64_t seed = 1;             // of starting values, dropout and the order of samples
  double clip_norm = 0;          // 0: gradients are not clipped
  DType compute = DType::kF32;   // f32 or bf16: what layers compute in (nn/module.h)
  Numerics numerics = Numerics::kFast;
  Schedule schedule = {};
  bool accuracy = false;         // evaluation counts right answers: for targets that are classes
  std::string out;               // folder for logs, report and checkpoints; "": none are written
  bool progress = true;          // the bar, on rank 0
  int64_t tokens_per_sample = 1;  // what throughput counts: tokens of a text, or 1 for samples
  std::string unit = "samples";
  std::string command;           // for the report; "": the job's
  std::vector<std::pair<std::string, std::string>> facts = {};  // for the report, before what the trainer knows: name, value
  std::string config_text;       // kept in the checkpoint, for who reads it later
  Parallel parallel = {};        // how the model is cut
  PassOptions passes = {};       // recompute, loss_pieces; which are left out
  std::string save_strategy;     // file that rank 0 writes the strategy to, for Parallel::strategy; "": none
  bool only_trained_parameters = false;  // of the strategy that is saved
  double gradient_scale = 1;     // multiplies every gradient, before clipping
  bool parameter_broadcast = false;  // starting values come from the first rank (Session::Options)
  // On rank 0, before the first step.
  std::function<void(const Session&, const StartInfo&)> on_start = {};
  // At the end, on rank 0: text for the report, made with the trained parameters by name.
  std::function<std::string(const std::function<View(std::string_view)>&)> sample = {};
};

struct FitOptions {
  int64_t epochs = 0;       // passes over the training samples; or
  int64_t steps = 0;        // steps, if not 0
  int64_t batch = 32;       // samples of a step over all ranks
  data::SourcePtr validation = nullptr;
  int64_t eval_every = 0;   // steps; 0: at the end only
  int64_t eval_batches = 0; // of a validation; 0: all of the validation set
  int64_t eval_batch = 0;   // samples of a batch of the validation over all ranks; 0: as in training
  int64_t save_every = 0;   // steps; 0: at the end only
  double save_every_minutes = 0;  // besides, by the clock of the first rank; 0: never
  int keep = 2;             // checkpoints
  Measure measure = Measure::kLoss;  // of the next three
  bool keep_best = false;   // what a validation finds better than all before is saved and stays, besides `keep`
  int64_t patience = 0;     // validations in a row that find nothing better after which the run ends; 0: it goes on
  double min_improvement = 0;  // less is not better
  bool merged_save = false; // each checkpoint is also written as one file of whole tensors, `out`/model.safetensors
  bool resume = false;      // go on from the newest checkpoint in `out`
};

// Samples of a batch of the validation.
inline int64_t evaluation_batch_of(const FitOptions& fit) { return fit.eval_batch > 0 ? fit.eval_batch : fit.batch; }

struct FitResult {
  int64_t step = 0;          // the last done
  double loss = 0;           // of the last step
  double validation_loss = 0;
  double accuracy = 0;       // of the validation set, in [0, 1]
  bool nothing_left = false; // the checkpoint resumed from is at the last step, or beyond
  bool interrupted = false;  // a signal asked to stop before the last step; the run is saved and can be resumed
  int signal = 0;            // that asked to stop, the last step done or not; 0: none
  int exit_code() const { return signal == 0 ? 0 : 128 + signal; }  // what the program should end with
  std::string checkpoint;    // the newest one's folder
  bool stopped_early = false;  // after `patience` validations; nothing_left says so too where it was before this call
  int64_t best_step = -1;    // of the validation that found the best; -1: none has been
  double best = 0;           // its loss or accuracy
  std::string report;        // report.html's path
  CommunicationSummary communication = {};  // of a mean step
};

class Trainer {
 public:
  Trainer(ModelFn model, LossFn loss, Optimizer optimizer, TrainerOptions options = {});
  // A module, and a loss named as a function: Trainer{net, cross_entropy, AdamW{}}.
  template <class Net>
    requires std::is_base_of_v<nn::Module, Net>
  Trainer(Net& net, Tensor (*loss)(const Tensor&, const Tensor&), Optimizer optimizer, TrainerOptions options = {})
      : Trainer([&net](const Tensor& x) { return net(x); }, LossFn(loss), std::move(optimizer), std::move(options)) {}
  ~Trainer();

  FitResult fit(const data::SourcePtr& train, const FitOptions& options);

 private:
  ModelFn model_;
  LossFn loss_;
  Optimizer optimizer_;
  TrainerOptions options_;
};

}  // namespace trireme
