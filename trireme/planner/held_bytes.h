// The bytes of values that a rank holds from step to step, or from the forward to the backward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

// Of each value of the graph: whether it is an input, or made forward and read back.
std::vector<char> held_values(const Graph& graph);
// Of all of them, where each lies as it is made.
int64_t held_bytes(const Graph& graph, const Strategy& strategy);

}  // namespace trireme
