#include "trireme/pass/parameter_names.h"

namespace trireme {

std::vector<std::string_view> parameter_names(const Graph& graph) {
  std::vector<std::string_view> out(graph.values().size());
  const auto name = [&](ValueId id) -> std::string_view& { return out[static_cast<size_t>(id)]; };
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) name(input.value) = input.name;
  }
  for (const Update& update : graph.updates()) {
    for (const ValueId state : update.states) name(state) = name(update.parameter);
  }
  for (const auto& [gradient, of] : graph.gradients()) {
    if (graph.value(of).producer < 0) name(gradient) = name(of);
  }
  for (const Node& node : graph.nodes()) {
    std::string_view common;
    bool one = true;
    for (const ValueId id : node.inputs) {
      if (name(id).empty()) {
        one = one && graph.type(id).elements() == 1;
      } else {
        one = one && (common.empty() || common == name(id));
        common = name(id);
      }
    }
    for (const ValueId id : node.outputs) {
      if (one && name(id).empty()) name(id) = common;
    }
  }
  return out;
}

}  // namespace trireme
