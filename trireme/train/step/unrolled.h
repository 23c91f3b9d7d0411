// A cut graph computed in micro-batches, and divided among the crews.
#pragma once

#include "trireme/train/step/compile.h"

namespace trireme {

// `may_repeat`: the programs may be of fewer micro-batches, which CrewPrograms::repeats says how to repeat.
CrewPrograms unrolled(Compiled whole, const CompileOptions& options, bool may_repeat);

}  // namespace trireme
