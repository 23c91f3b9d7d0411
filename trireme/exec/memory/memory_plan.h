// Offline placement of buffers in one arena: every offset is known before anything runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/exec/memory/lifetime.h"

namespace trireme {

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one per lifetime
  int64_t bytes = 0;             // of the arena
  int64_t lower_bound = 0;       // most bytes live at one step, rounded as the buffers are: no plan needs less
};

inline constexpr int64_t kBufferAlignment = 64;  // at least; a device may ask for more
int64_t align_buffer(int64_t bytes, int64_t alignment = kBufferAlignment);

// Best fit, the largest buffers first (the greedy-by-size of Pisarchyk and Lee, "Efficient memory management for
// deep neural net inference", 2020), or those of similar lengths along time, in several orders of which the smallest
// arena is kept. Buffers whose lifetimes overlap never share bytes; the result depends on the arguments only. Throws
// kInvalidArgument where all of them together are more than 2^62 bytes.
MemoryPlan plan_memory(std::span<const Lifetime> buffers, int64_t alignment = kBufferAlignment);

}  // namespace trireme
