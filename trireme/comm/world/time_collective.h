// Timing of one collective over a range of sizes, for `trireme bench collective` and for measured
// machine files.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/comm/comm.h"

namespace trireme::comm {

struct CollectiveTiming {
  int64_t bytes = 0;  // of the whole tensor, as in the errors: `inout`, the gathered or the scattered whole
  double median_us = 0;
  double min_us = 0;
  double p99_us = 0;
  // Bytes that each rank must move over its link in the best algorithm, by the median time: the
  // figure that compares between sizes of group. All-reduce 2 n (p - 1) / p, the others n (p - 1) /
  // p, broadcast n.
  double bus_gb_per_s = 0;
};

struct TimingOptions {
  bool in_arena = true;  // operands in memory from World::allocate
  Reduce reduce = Reduce::kSum;
  int warmup = 5;
  std::chrono::milliseconds budget{500};  // for each size
  int max_runs = 5000;
};

// Times f32 operations on the world group; collective, and every rank gets the times of the slowest
// rank at the middle of the job, rank 0's. Operation names are those of Group: "all_reduce",
// "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier". Throws kInvalidArgument on
// another name.
std::vector<CollectiveTiming> time_collective(World& world, std::string_view op, std::span<const int64_t> bytes,
                                              const TimingOptions& options = {});

}  // namespace trireme::comm
