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

// Buffers repeat where there are as many again some steps later, as large and in use as long, over and over. A buffer
// lies where the one lies that is so many times before it as its kind is alive at once: as activations of micro-batches
// do that a pipeline has on their way. So no more times than that have places of their own. Any placing of the fewer
// in which those of a group share a place is one of all: two buffers in use at once are some times apart, and there are
// two of the fewer that are as far apart, in the same places. Nothing where too few buffers repeat.
std::optional<RepeatedLifetimes> repeated_lifetimes(std::span<const Lifetime> buffers);

}  // namespace trireme
