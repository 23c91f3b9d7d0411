// Which ops a rule for a part of the model applies to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/parallel/asked/scope_pattern.h"

namespace trireme {

// The names of the ops in the scope and inside it, forward, backward and updates, in order, each once. Throws
// kInvalidArgument where there is none; `rule` says whose scope it is: "parallel.on 'wte = host'".
std::vector<std::string> ops_in(const Graph& graph, const ScopePattern& scope, std::string_view rule);

}  // namespace trireme
