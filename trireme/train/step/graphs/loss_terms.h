// Whether the loss of a set of samples is the mean of the losses of its parts, weighted by their samples. It is if the
// loss is a mean of values, equally many for each sample. It is not if the model's code makes a scalar from sums over
// the batch, such as a quotient of two sums.
#pragma once

#include <optional>

#include "trireme/ir/graph.h"

namespace trireme {

// The node from which on the loss is not known to be such a mean, of a graph with an output "loss"; none: it is one.
// What is known is what is linear in the batch's part of a scalar, by the sharding rules.
std::optional<NodeId> not_a_mean_of_parts(const Graph& evaluation);

}  // namespace trireme
