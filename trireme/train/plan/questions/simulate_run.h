// A run of many steps in virtual time: how much of its time is training if ranks fail, checkpoints are saved and the
// job starts again.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// A rank is lost once, during this step of the training (counted from 1; a step that is repeated counts once).
struct GivenFailure {
  int64_t rank = 0;
  int64_t step = 1;
};

// Times are in seconds.
struct RunConditions {
  int64_t steps = 1000;
  int64_t ranks = 1;
  double step_s = 0;             // above 0
  int64_t checkpoint_every = 0;  // steps; 0: nothing is saved but after the last
  double checkpoint_s = 0;       // of saving, in which no step runs
  double restart_s = 0;          // from a rank's end to the first step after it
  double mtbf_s = 0;             // mean time between failures of one rank, each at any moment alike; 0: none fails
  uint64_t seed = 1;             // of those moments
  std::vector<GivenFailure> failures = {};
};

// The parts add up to `total_s`.
struct SimulatedRun {
  double total_s = 0;
  double training_s = 0;    // steps that lasted
  double again_s = 0;       // steps that were lost with what was not saved, and those that a failure broke off
  double checkpoint_s = 0;  // saving, also what a failure broke off
  double restart_s = 0;
  int64_t failures = 0;
  int64_t steps_again = 0;  // whole ones

  double goodput() const { return total_s > 0 ? training_s / total_s : 1; }
};

// Ranks start again from the last checkpoint that was saved completely; no rank fails while the job starts. Throws
// kInvalidArgument for conditions other than those above, and if failures come so fast that a hundred thousand of them
// do not let the run reach its next checkpoint.
SimulatedRun simulate_run(const RunConditions& run);

// The steps between checkpoints that lose the least time: sqrt(2 checkpoint_s M), where M is the mean time between
// failures of the job (Young, 1974). 0 if no rank fails at random.
int64_t best_checkpoint_every(const RunConditions& run);

}  // namespace trireme
