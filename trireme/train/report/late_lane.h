// Whether steps took longer than the plan predicts, and which of a rank's lanes that comes from.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/exec/executor.h"
#include "trireme/train/step/compile.h"

namespace trireme {

// In one line, where steps took more than 15 % longer than the modelled one by the compiled rates; "": they did not, or
// nobody named or measured a machine, or nothing moves between tiers. `times` are those of a rank of the first crew,
// summed over `steps` steps, which took `steps_s` together.
std::string missed_prediction(const Compiled& compiled, std::span<const ActionTime> times, int64_t steps,
                              double steps_s);

}  // namespace trireme
