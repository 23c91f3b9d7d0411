// Updates parameters as soon as their gradients are there.
//
// Before: all updates stand after the whole backward pass, and every gradient is alive until then. After: a gradient is
// used up while it is in the cache and its bytes serve the next one (LOMO, Lv et al., 2023, does the same by hand). Where
// all gradients must be known first, as for clipping by their global norm, nothing moves.
//
// An update waits until nobody else reads the parameter, which it overwrites. What a collective makes counts as there
// when the next collective has begun, so that the update does not wait for bytes on their way.
#pragma once

#include "trireme/ir/program.h"

namespace trireme {

Program early_updates(const Program& program);

}  // namespace trireme
