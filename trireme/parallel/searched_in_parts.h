// Micro-batches beside a search for a strategy (planner/search.h). A search looks at the ranks alone: it finds how they
// share the whole batch, by cuts that leave each rank whole parts of micro-batches. Propagation then adds the
// micro-batches to what it found.
#pragma once

#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/parallel/parallel.h"
#include "trireme/parallel/propagate/asks.h"
#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

// How micro-batches cut the graph, on a mesh that has their axes and no ranks. Throws kInvalidArgument if the batch or
// its positions do not divide.
Strategy cut_by_micro_batches(const Graph& graph, const Parallel& parallel);

// Values that are of no micro-batch, such as weights, and that ops of each read: whatever brings them to these ops is
// done for each.
std::vector<char> brought_to_each(const Graph& graph, const Strategy& by_parts);

// Asks for what was found: layouts of inputs, cuts of forward ops and, if nothing slices the state afterwards, of
// updates. Cuts that the user asked for stay. `by_parts` is what cut_by_micro_batches gives.
void ask_found(const Graph& graph, const Strategy& found, const Strategy& by_parts, bool with_updates, Asks& asks);

}  // namespace trireme
