// Explains the layout of a tensor, for `trireme explain --value`.
#pragma once

#include <string>
#include <string_view>

#include "trireme/partition/partition.h"

namespace trireme {

// For every input and output of the graph, and every node in a scope, that the pattern matches (`*` stands for any
// characters): its whole type, its layout and local shape, who asked for it or what it follows from, and what is done
// to it before it is read. Throws kNotFound, naming the likely one, when nothing matches.
std::string why(const Graph& graph, const Strategy& strategy, std::string_view pattern,
                const PartitionOptions& options = {});

}  // namespace trireme
