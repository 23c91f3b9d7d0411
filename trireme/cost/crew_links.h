// The links between the crews of a pipeline, whose ranks are consecutive devices of the machine.
#pragma once

#include "trireme/cost/op_seconds.h"

namespace trireme {

// The link between two crews of `ranks_of_crew` ranks each, of which one is `apart` crews after the other. If no
// machine is named, it is the link by which reshards are chosen.
LinkCost link_between_crews(int64_t apart, int64_t ranks_of_crew, const Rates& rates);

}  // namespace trireme
