// What the program of a crew takes, for the nodes of its last micro-batch and for all nodes. Prices of parts are made
// from it (part_prices.h).
#pragma once

#include "trireme/cost/op_seconds.h"
#include "trireme/planner/outer/stage_problem.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme {

inline constexpr int kMicroBatches = 2;  // of the job; what the second one takes is what each more takes

struct CrewSums {
  // What the last micro-batch takes; the bytes that each micro-batch keeps, and those that wait for weight gradients;
  // without what belongs to the step.
  PartPrice last;
  // Passes and moves of the step; bytes: persistent, held, gradients, host, disk, and as `work` the arena.
  PartPrice all;
  int64_t messages = 0, message_bytes = 0;  // that it sends, of the last micro-batch
  int in_flight = kMicroBatches;            // micro-batches that it keeps at once
};

// The sums for a crew of a job with kMicroBatches that runs all forward passes first. `is_joined`: the micro-batches
// depend on each other. For a job with a single micro-batch only the passes of `all` are meaningful. `keep`: where what
// is kept lies; if that is elsewhere, micro-batches are not joined, and a crew may run one after the other.
CrewSums sums_of_crew(const CompiledCrew& crew, const Rates& rates, bool is_joined, Tier keep);

}  // namespace trireme
