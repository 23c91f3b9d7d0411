#include "trireme/parallel/asked/ops_in.h"

#include <set>

#include "trireme/base/error.h"
#include "trireme/ir/gradient_scope.h"

namespace trireme {

std::vector<std::string> ops_in(const Graph& graph, const ScopePattern& scope, std::string_view rule) {
  std::set<std::string, std::less<>> scopes, ops;
  for (const Node& node : graph.nodes()) {
    const std::string_view at = module_scope(graph, node);
    if (!at.empty() && node.phase == Phase::kForward) scopes.emplace(at);
    if (scope.matches(at)) ops.emplace(node.op->name);
  }
  require(!ops.empty(), "{} matches no part of the model.{}", rule,
          suggestion(scope.text(), {scopes.begin(), scopes.end()}));
  return {ops.begin(), ops.end()};
}

}  // namespace trireme
