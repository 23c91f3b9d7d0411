// Updates parameters as soon as their gradients are ready.
//
// Before: all updates stand after the whole backward pass, and every gradient is alive until then. After: a gradient is
// used up while it is in the cache and its bytes serve the next one (LOMO, Lv et al., 2023, does the same by hand).
// Where all gradients must be known first, as for clipping by their global norm, nothing moves.
//
// An update waits until nobody else reads the parameter, which it overwrites. The result of a collective counts as
// ready when another collective has begun. The sum over ranks, which may be under way for long, counts as ready when a
// collective begins after its end in the modelled step (step_times.h). Over a slow link most updates stand at the end:
// the backward pass waits for none.
#pragma once

#include "trireme/ir/program.h"
#include "trireme/pass/step_times.h"

namespace trireme {

Program early_updates(const Program& program, const Rates& rates = {});

}  // namespace trireme
