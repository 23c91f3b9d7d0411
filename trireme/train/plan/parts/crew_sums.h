// What the program of a crew takes, for the nodes of its last micro-batch and for all nodes. Prices of parts are made
// from it (part_prices.h).
#pragma once

#include "trireme/cost/op_seconds.h"
#include "trireme/planner/outer/stage_problem.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme {

inline constexpr int kMicroBatches = 2;  // of the job; what the second one takes is what each more takes

struct CrewSums {
  // What the last micro-batch takes, of a single one all but the updates; the bytes that each micro-batch keeps, and
  // those that wait for weight gradients; without what belongs to the step.
  PartPrice last;
  // Passes and moves of the step; bytes: persistent, held, gradients, host, disk, and as `work` the arena.
  PartPrice all;
  int64_t messages = 0, message_bytes = 0;  // that it sends, of the last micro-batch
  int in_flight = kMicroBatches;            // micro-batches that it keeps at once
};

struct PartWay {
  Tier keep = Tier::kDevice;   // where what is kept lies; if that is elsewhere, a crew may run one after the other
  bool scatters_each = false;  // ranks scatter the sums of each micro-batch's gradients, and keep slices of them
  bool gathers_each = false;   // and gather weights from slices in each pass of each micro-batch
};

// The sums for a crew of a job with kMicroBatches, which do not depend on each other and all go forward first. For a
// job with a single micro-batch what it keeps, and gradients, are only in `work`.
CrewSums sums_of_crew(const CompiledCrew& crew, const Rates& rates, const PartWay& way);

}  // namespace trireme
