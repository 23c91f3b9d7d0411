// What the pass `homes` knows about values that are not always on the device.
#pragma once

#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/op/move.h"

namespace trireme {

// Ops that use a value while it is on the device, from the first to the last of them.
struct Visit {
  NodeId first = -1, last = -1;
  NodeId earliest = -1;  // of them, one of the earliest phase, which what they all read is of
  NodeId after = -1;     // of what is kept: the op after which it has left, so that it begins to come no sooner
};

// A value that is on the device for its visits, and at home between them.
struct Trip {
  ValueId value = kNoValue;
  Tier home = Tier::kHost;
  bool is_made = false;  // by the first visit, after which it leaves; else it is at home from the start
  std::vector<Visit> visits;
};

// A value that replaces an input whose home is elsewhere.
struct Return {
  Tier home = Tier::kHost;
  NodeId last_user = -1;  // the op that makes it, or the last that reads it
};

}  // namespace trireme
