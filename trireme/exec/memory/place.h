// Placing buffers one by one in a given order. plan_memory (memory_plan.h) tries several orders.
#pragma once

#include <cstddef>
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

// How buffers are placed that are given in an order.
struct Placing {
  int64_t alignment = kBufferAlignment;
  bool slots_first = false;  // where one of its size is, before the smallest gap
  int64_t most = 0;          // it stops where it will not take fewer bytes
};

// Each buffer goes into the smallest gap that holds it among the buffers that overlap it in time. With `slots_first` it
// goes, if possible, to where a buffer of its size was, the one unused for the longest time in the order of placing. If
// placing stopped early, `bytes` is `most` or more.
MemoryPlan place_each(std::span<const Lifetime> buffers, const std::vector<size_t>& order, const Placing& how);

// The same with an index over time, which pays for many buffers, and by looking at all placed buffers, which is faster
// for few. by_looking takes no buffers without bytes, and fewer than 32,767 steps from the first to the last.
MemoryPlan place_by_index(std::span<const Lifetime> buffers, const std::vector<size_t>& order, const Placing& how);
MemoryPlan place_by_looking(std::span<const Lifetime> buffers, const std::vector<size_t>& order, const Placing& how);

}  // namespace trireme
