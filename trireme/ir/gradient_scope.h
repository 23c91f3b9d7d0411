// The name scopes of gradients. What is computed for the gradient of an op has its own scope beside the op's, and rules
// that users give for a module apply to both.
#pragma once

#include <string>
#include <string_view>

#include "trireme/ir/graph.h"

namespace trireme {

// "grad/h.3.mlp" for what stands in "h.3.mlp".
std::string gradient_scope(std::string_view scope);

// The scope of the module that the node works for, forward or backward: "h.3.mlp".
std::string_view module_scope(const Graph& graph, const Node& node);

}  // namespace trireme
