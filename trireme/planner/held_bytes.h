// The bytes of values that a rank holds from step to step, or from the forward to the backward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

// By what these are divided where a rank has a crew's share of a pipeline, and keeps some micro-batches at a time.
struct HeldShare {
  int64_t inputs = 1, others = 1;
};
// If all stages hold as much, and in the order 1f1b: as many micro-batches are in flight as there are crews.
HeldShare held_share(int64_t crews, int64_t micro_batches);

// Of each value of the graph: whether it is an input, or made forward and read back.
std::vector<char> held_values(const Graph& graph);
// Of all of them, where each lies as it is made.
int64_t held_bytes(const Graph& graph, const Strategy& strategy, const HeldShare& share = {});

}  // namespace trireme
