#include "trireme/plan/updates.h"

namespace trireme {
namespace {

// The parameter that state "w.<something>" is of; null: none.
const Input* owner_of(const Input& state, const Graph& graph, const std::map<std::string_view, const Input*>& parameters) {
  const std::string_view name = state.name;
  for (size_t dot = name.rfind('.'); dot != std::string_view::npos && dot > 0; dot = name.rfind('.', dot - 1)) {
    const auto found = parameters.find(name.substr(0, dot));
    if (found != parameters.end() && graph.type(found->second->value) == graph.type(state.value)) return found->second;
  }
  return nullptr;
}

}  // namespace

std::map<std::string_view, Update> updates_of(const Graph& graph) {
  std::map<std::string_view, Update> out;
  std::map<std::string_view, const Input*> parameters;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) parameters.emplace(input.name, &input);
  }
  for (const auto& [name, input] : parameters) out.try_emplace(name);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    if (graph.inputs()[i].role != Role::kState) continue;
    const Input* const owner = owner_of(graph.inputs()[i], graph, parameters);
    if (owner != nullptr) out.at(owner->name).state.push_back(i);
  }
  for (const Node& node : graph.nodes()) {
    const std::string_view scope = graph.scope_of(node);
    if (!scope.starts_with(kUpdateScope)) continue;
    const auto found = parameters.find(scope.substr(kUpdateScope.size()));
    if (found == parameters.end()) continue;
    for (const ValueId id : node.inputs) {
      const NodeId producer = graph.value(id).producer;
      const bool from_outside = producer >= 0 && graph.scope_of(graph.node(producer)) != scope;
      if (from_outside && graph.type(id).shape == graph.type(found->second->value).shape) out.at(found->first).gradient = id;
    }
  }
  return out;
}

}  // namespace trireme
