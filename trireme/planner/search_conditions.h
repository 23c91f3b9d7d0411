// What a search for a strategy depends on besides the graph and its mesh.
#pragma once

#include <cstdint>

#include "trireme/cost/op_seconds.h"
#include "trireme/parallel/asked/search_options.h"
#include "trireme/parallel/propagate/asks.h"
#include "trireme/partition/partition.h"
#include "trireme/planner/candidates.h"
#include "trireme/planner/held_bytes.h"
#include "trireme/planner/times_brought.h"

namespace trireme {

struct SearchConditions {
  PartitionOptions partition = {};
  Rates rates = {};
  int64_t memory_bytes = 0;  // of parameters, state and what the backward pass reads, on each device; 0: no limit
  HeldShare share = {};      // of these that a device has at a time
  TimesBrought times_brought = {};
  Asks asks = {};  // that are kept
  CandidateOptions candidates = {};
};

}  // namespace trireme
