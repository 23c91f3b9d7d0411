// What a training is asked for besides its model, loss, optimizer and data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/mesh/tuning_place.h"
#include "trireme/parallel/parallel.h"
#include "trireme/pass/passes.h"
#include "trireme/tensor/view.h"
#include "trireme/train/step/graphs/learning_rate.h"
#include "trireme/train/step/graphs/step_options.h"

namespace trireme {

enum class Mode {
  kStandAlone,    // one rank
  kDataParallel,  // each rank trains on its share of the batch
  kSemiAuto,      // as `parallel` says
  kAuto,          // as `parallel` says, and what it does not say is found by Parallel::search
  kHybrid,        // the model's code works on the ranks' pieces, with collectives of its own (docs/guide/04)
};

inline constexpr NameOf<Mode> kModes[] = {{"data_parallel", Mode::kDataParallel},
                                          {"semi_auto_parallel", Mode::kSemiAuto},
                                          {"auto_parallel", Mode::kAuto},
                                          {"hybrid_parallel", Mode::kHybrid},
                                          {"stand_alone", Mode::kStandAlone}};
inline std::string_view to_string(Mode mode) {
  return name_of(mode, kModes);
}

class Session;

// What is known when training begins.
struct StartInfo {
  int64_t first_step = 0;  // done before; the next one is the first of this run
  int64_t last_step = 0;
  std::string data;       // "1,234 samples to train on, 137 held out"
  double expected_s = 0;  // of the whole run, by the time of a forward pass; 0: not known
};

struct TrainerOptions {
  StepOptions step = {};
  Mode mode = Mode::kDataParallel;
  std::string device = "cpu";  // make_device (backend/device.h)
  // Where it is kept which kernels are the quickest on this machine: a file, "auto", the usual one, or "off", for the
  // usual kernels (docs/howto/measure_a_machine.md).
  TuningPlace tuning = "off";
  Schedule schedule = {};
  std::string out;                // folder for logs, report and checkpoints; "": none are written
  bool progress = true;           // the bar, on rank 0
  int64_t tokens_per_sample = 1;  // what throughput counts: tokens of a text, or 1 for samples
  std::string unit = "samples";
  std::string command;  // for the report; "": the job's
  std::vector<std::pair<std::string, std::string>> facts =
      {};                                // for the report, before what the trainer knows: name, value
  std::string config_text;               // kept in the checkpoint, for who reads it later
  Parallel parallel = {};                // how the model is cut
  PassOptions passes = {};               // recompute, loss_pieces; which are left out
  std::string save_strategy;             // file that rank 0 writes the strategy to, for Parallel::strategy; "": none
  bool only_trained_parameters = false;  // of the strategy that is saved
  std::string trace;                     // file that rank 0 writes a trace to (train/report/trace.h); "": none
  int64_t trace_steps = 3;               // that it has, from the run's second on
  bool parameter_broadcast = false;      // starting values come from the first rank (Session::Options)
  // On rank 0, before the first step.
  std::function<void(const Session&, const StartInfo&)> on_start = {};
  // At the end, on rank 0: text for the report, made with the trained parameters by name.
  std::function<std::string(const std::function<View(std::string_view)>&)> sample = {};
};

}  // namespace trireme
