// Whether steps took longer than the plan predicts, and which of a rank's lanes is the cause.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trireme/exec/run/executor.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme {

// Of a rank of the first crew.
struct MeasuredSteps {
  std::span<const ActionTime> times;  // by action, summed over the steps
  int64_t count = 0;
  double seconds = 0;                           // all of them together, beside what is no part of a step
  int64_t ranks_here = 1;                       // that are known to share this host's cores
  int64_t threads = 1;                          // with which each computes
  std::optional<double> disk_bytes_per_s = {};  // of the slower way, where the run has measured it
};

// One line if steps took more than 15 % longer than the modelled one; "" if they did not, or if nothing moves between
// tiers. The modelled step uses the rates of the machine that is named or measured. Without one it uses the measured
// compute times, and for moves the usual rates and the disk's; then 10 ms a step and less are not reported (and nothing
// for stages of a pipeline, since a rank knows only its own).
std::string missed_prediction(const Compiled& compiled, const MeasuredSteps& steps);

}  // namespace trireme
