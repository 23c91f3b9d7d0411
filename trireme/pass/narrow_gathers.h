// Weights that are read in a narrower type than they are stored in are exchanged in that type. Before: ranks gather a
// weight from its slices in f32, cast all of it to bf16 and keep that from the forward to the backward pass. After:
// each rank casts its slice, half as many bytes are exchanged, no rank repeats a cast of another one, and the backward
// pass gathers the weight again, as it does for weights that are not cast (ZeRO 3). The bits are the same.
#pragma once

#include "trireme/ir/program.h"

namespace trireme {

// Of the program of all stages, before its micro-batches are unrolled.
Program narrow_gathers(Program program);

}  // namespace trireme
