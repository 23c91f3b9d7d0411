// Attributes: what a person may ask of an op besides cuts, in the place of cuts.
//   cross_batch            sums over ranks are not taken: each rank goes on with what it makes of its own part of the
//   batch cross_batch mean       the same for a sum that a mean is made of: it becomes the mean of the rank's own part.
//   Sums whose reader
//                          counts the batch (OpDef::in_part) become that either way
//   skip_redistribution    the op takes its operand as that comes, whatever its rule asks; after "->" may stand how the
//                          result lies, else it is cut by the same axes
//   self_define_shard [dp, -] -> [-, dp]   operands and results lie as said; the op is run on the pieces
// Of all but the first two, and of those too, the answer is the asker's: ranks may compute what one device does not.
#pragma once

#include <string>
#include <string_view>

#include "trireme/plan/propagate.h"

namespace trireme {

// Whether the text is an attribute and no cuts. Throws kInvalidArgument, naming the likely one, for another word.
bool is_attribute(std::string_view text);

// Adds to the asks. Throws kInvalidArgument when the node cannot have the attribute.
void ask_attribute(std::string_view text, const Graph& graph, NodeId id, const Mesh& mesh, Asks& asks);

}  // namespace trireme
