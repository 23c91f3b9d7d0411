#include "trireme/ir/gradient_scope.h"

namespace trireme {
namespace {

constexpr std::string_view kBeforeScope = "grad/";

}  // namespace

std::string gradient_scope(std::string_view scope) {
  return std::string(kBeforeScope) + std::string(scope);
}

std::string_view module_scope(const Graph& graph, const Node& node) {
  std::string_view scope = graph.scope_of(node);
  // A module's own name cannot begin so: a gradient is known by its phase.
  if (node.phase == Phase::kBackward && scope.starts_with(kBeforeScope)) scope.remove_prefix(kBeforeScope.size());
  return scope;
}

}  // namespace trireme
