// Offline placement of buffers in one arena: every offset is known before anything runs.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/exec/memory/place.h"

namespace trireme {

// Best fit, the largest buffers first (the greedy-by-size of Pisarchyk and Lee, "Efficient memory management for
// deep neural net inference", 2020), or those of similar lengths along time, in several orders of which the smallest
// arena is kept. Buffers whose lifetimes overlap never share bytes; the result depends on the arguments only. Throws
// kInvalidArgument where all of them together are more than 2^62 bytes.
MemoryPlan plan_memory(std::span<const Lifetime> buffers, int64_t alignment = kBufferAlignment);

}  // namespace trireme
