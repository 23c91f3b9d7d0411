#include "trireme/plan/updates.h"

namespace trireme {

Update update_of(const Graph& graph, const Input& parameter) {
  Update out;
  const TensorType& type = graph.type(parameter.value);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (input.role == Role::kState && input.name.starts_with(parameter.name + ".") && graph.type(input.value) == type) {
      out.state.push_back(i);
    }
  }
  const std::string scope = std::string(kUpdateScope) + parameter.name;
  for (const Node& node : graph.nodes()) {
    if (graph.scope_of(node) != scope) continue;
    for (const ValueId id : node.inputs) {
      const NodeId producer = graph.value(id).producer;
      const bool from_outside = producer >= 0 && graph.scope_of(graph.node(producer)) != scope;
      if (from_outside && graph.type(id).shape == type.shape) out.gradient = id;
    }
  }
  return out;
}

}  // namespace trireme
