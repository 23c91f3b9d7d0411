// How long a collective takes. Every model of time in the library uses it: the search for reshards, buckets of sums,
// virtual time, prices of programs. The model is the latency and bandwidth of one link (Hockney, 1994); each is taken
// from the link between the ranks that is worst in it.
#pragma once

#include <cstdint>

#include "trireme/layout/reshard_step.h"

namespace trireme {

// What one rank goes through.
struct CollectiveWork {
  double rounds = 0;  // messages that wait for each other
  double bytes = 0;   // that it sends
};

// A gather, scatter or exchange among all ranks that is optimal in bytes: ceil(log2 ranks) rounds, and of the payload,
// the larger of what a rank has before and after, it sends all but its own share. `ways`: 2 for a sum that all get,
// which is scattered and then gathered.
CollectiveWork among_all(int64_t ranks, double payload_bytes, int ways = 1);

double seconds(const CollectiveWork& work, const LinkCost& link, const ReshardCosts& costs);

// The greater latency and the lesser bandwidth of two.
LinkCost slower(const LinkCost& a, const LinkCost& b);

}  // namespace trireme
