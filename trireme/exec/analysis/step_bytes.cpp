#include "trireme/exec/analysis/step_bytes.h"

#include <algorithm>
#include <map>

namespace trireme {
namespace {

double moved_bytes(const ExecutionPlan& plan) {
  const auto types_of = [&](const std::vector<int>& values) {
    std::vector<TensorType> types;
    for (const int id : values) types.push_back(plan.values[static_cast<size_t>(id)].type);
    return types;
  };
  double bytes = 0;
  for (const Action& action : plan.actions) {
    if (action.kernel.empty() || !action.op->cost) continue;
    const std::vector<TensorType> in = types_of(action.in);
    const std::vector<TensorType> out = types_of(action.out);
    const bool is_view = action.op->traits.zero_cost_view && !action.in.empty() && !action.out.empty() &&
                         plan.offset_of(action.in[0]) == plan.offset_of(action.out[0]);
    if (!is_view) bytes += action.op->cost.get()({in, out, action.attrs}).bytes;
  }
  return bytes;
}

// What the backward pass reads of the forward pass. Views of one tensor count once, by their largest.
double kept_bytes(const Program& program, const ExecutionPlan& plan) {
  const Graph& graph = program.graph;
  std::map<int, int64_t> kept;  // by buffer
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kBackward) continue;
    for (const ValueId id : node.inputs) {
      const NodeId producer = graph.value(id).producer;
      if (producer < 0 || graph.node(producer).phase != Phase::kForward) continue;
      const PlanValue& value = plan.values[static_cast<size_t>(id)];
      int64_t& bytes = kept[value.buffer];
      bytes = std::max(bytes, value.type.bytes());
    }
  }
  double bytes = 0;
  for (const auto& [buffer, most] : kept) {
    const Holding holding = plan.buffers[static_cast<size_t>(buffer)].holding;
    const bool is_input = is_persistent(holding) || holding == Holding::kData;  // a view of one
    if (!is_input) bytes += static_cast<double>(most);
  }
  return bytes;
}

}  // namespace

StepBytes step_bytes(const Program& program, const ExecutionPlan& plan) {
  StepBytes out{.moved = moved_bytes(plan), .least = 2 * kept_bytes(program, plan)};
  const auto bytes_of = [&](int value) {
    return static_cast<double>(plan.values[static_cast<size_t>(value)].type.bytes());
  };
  for (const PlanInput& input : plan.inputs) out.least += bytes_of(input.value);
  for (const PlanOutput& output : plan.outputs) out.least += bytes_of(output.value);
  return out;
}

}  // namespace trireme
