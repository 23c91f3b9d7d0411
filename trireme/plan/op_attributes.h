// Attributes: what a user may ask of an op instead of cuts.
//   cross_batch          sums over ranks are not taken: each rank goes on with the sum of its own part of the batch
//   cross_batch mean     the same for a sum that a mean is made of: it becomes the mean of the rank's own part. Sums
//                        whose reader counts the batch (OpDef::in_part) become that either way
//   skip_redistribution  the op takes its operand in the layout it comes in, whatever its rule asks; "->" and a layout
//                        may follow for the result, which is otherwise cut by the same axes
//   self_define_shard [dp, -] -> [-, dp]
//                        operands and results lie as these layouts say; the op is run on the pieces
// With all of them ranks may compute what one device does not: whether that is right is up to the user.
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
