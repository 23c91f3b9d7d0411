// The links between the crews of a pipeline, whose ranks are consecutive devices of the machine.
#pragma once

#include "trireme/cost/op_seconds.h"

namespace trireme {

// One of those between two crews of so many ranks each; `apart`: how many crews one is after the other. The link that
// reshards are chosen by where no machine is named.
LinkCost link_between_crews(int64_t apart, int64_t ranks_of_crew, const Rates& rates);

}  // namespace trireme
