// Buffers of a step that repeats itself many times: a smaller set of buffers, from whose places those of all follow.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "trireme/exec/memory/lifetime.h"

namespace trireme {

struct RepeatedLifetimes {
  std::vector<Lifetime> lifetimes;          // with some times left out
  std::vector<std::vector<size_t>> groups;  // of these, which must lie in one place; each is in one, in order
  std::vector<size_t> as;                   // of all buffers, by which of these it lies
};

// Buffers repeat if, some steps later, there are as many again with the same sizes and lifetimes, over and over. As
// many repetitions of a buffer as are alive at once need places of their own (think of the micro-batches that a
// pipeline has in flight); each later one takes the place of the buffer that many repetitions before it. Any placing of
// these fewer buffers, in which the buffers of a group share a place, gives a placing of all: if two buffers are in use
// at once, two of the fewer are as many repetitions apart, and have the same places. Nothing if too few buffers repeat.
std::optional<RepeatedLifetimes> repeated_lifetimes(std::span<const Lifetime> buffers);

}  // namespace trireme
