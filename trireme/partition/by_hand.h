// Programs of models that are cut by hand: the graph is what each rank runs, and it contains all collectives.
#pragma once

#include "trireme/ir/program.h"
#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

// How the ranks' pieces of an input lie, by Input::piece, whose layout is of the leading dimensions (a bias [out] of a
// weight [out,in] takes the first): replicated where nothing is said, along dimension 0 over all ranks where each has
// its own. Throws kInvalidArgument for a layout that cannot be.
Layout piece_layout(const Input& input, const Shape& piece, const Mesh& mesh);

// The graph as the program of every rank. `uncut` is a strategy for it that cuts nothing. Inputs, and outputs that
// update them, lie as their pieces say; everything else is each rank's own.
Program by_hand(const Graph& graph, const Strategy& uncut);

}  // namespace trireme
