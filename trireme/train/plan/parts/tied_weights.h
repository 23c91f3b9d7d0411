// Weights that two parts of a model read, such as an embedding's table that is the head as well. They lie in the first
// part; the crew of the other one gets them once a step, and sends back the sum of its gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme {

// What the crew that has such weights adds to its own gradients once a step, and what the collectives take that scatter
// what both make. `prices`: ps, by node.
struct TiedGradients {
  int64_t came_bytes = 0, scatters_ps = 0;
};
TiedGradients tied_gradients(const Graph& graph, const std::vector<int64_t>& prices);

// What it takes the crew that gets slices of them to gather these for the passes of a micro-batch, as far as a stage
// that has both parts does without: its forward pass gathers a weight once, and its backward pass still has what the
// head's forward pass before it read, if it was gathered in one step.
struct TiedGathers {
  int64_t forward_ps = 0, backward_ps = 0;
};
TiedGathers tied_gathers(const Graph& graph, const std::vector<int64_t>& prices, int micro_batch);

}  // namespace trireme
