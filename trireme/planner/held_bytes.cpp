#include "trireme/planner/held_bytes.h"

#include <algorithm>

namespace trireme {

HeldShare held_share(int64_t crews, int64_t micro_batches) {
  return {.inputs = crews, .others = std::max(crews, micro_batches)};
}

std::vector<char> held_values(const Graph& graph) {
  std::vector<char> out(graph.values().size(), 0);
  for (const Input& input : graph.inputs()) out[static_cast<size_t>(input.value)] = 1;
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kBackward) continue;
    for (const ValueId operand : node.inputs) {
      const NodeId producer = graph.value(operand).producer;
      if (producer >= 0 && graph.node(producer).phase == Phase::kForward) out[static_cast<size_t>(operand)] = 1;
    }
  }
  return out;
}

int64_t held_bytes(const Graph& graph, const Strategy& strategy, const HeldShare& share) {
  const std::vector<char> held = held_values(graph);
  const std::vector<Layout> layouts = value_layouts(graph, strategy);
  int64_t out = 0;
  for (size_t v = 0; v < held.size(); ++v) {
    if (held[v] == 0) continue;
    const TensorType& type = graph.type(static_cast<ValueId>(v));
    const int64_t bytes = TensorType{type.dtype, local_shape(type.shape, layouts[v], strategy.mesh)}.bytes();
    out += bytes / (graph.values()[v].producer < 0 ? share.inputs : share.others);
  }
  return out;
}

}  // namespace trireme
