// For which reader a delivery was first made, and which other readers use its result instead of having it made again.
// The partitioner emits deliveries by this rule, and strategies are priced by it.
#pragma once

#include "trireme/ir/graph.h"

namespace trireme {

struct DeliveryReader {
  Phase phase = Phase::kForward;
  int stage = -1;

  // Readers of one stage, and not across the border of the backward pass, before which what came may have gone again.
  bool serves(const DeliveryReader& other) const {
    return (phase == Phase::kBackward) == (other.phase == Phase::kBackward) && phase <= other.phase &&
           stage == other.stage;
  }
  friend bool operator==(const DeliveryReader&, const DeliveryReader&) = default;
};

}  // namespace trireme
