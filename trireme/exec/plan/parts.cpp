#include "trireme/exec/plan/parts.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/structural.h"

namespace trireme {

int64_t bytes_before_part(const OpBase& op, const Attrs& attrs, const TensorType& whole) {
  if (&op != &structural().part || whole.shape.rank() == 0) return 0;
  return attrs.as<PartAttrs>().first * (whole.bytes() / std::max<int64_t>(1, whole.shape[0]));
}

JoinedParts joined_parts(const Graph& graph, std::span<const Few<ValueId, 2>> replaces) {
  JoinedParts out{std::vector<ValueId>(graph.values().size(), kNoValue),
                  std::vector<int64_t>(graph.values().size(), 0)};
  for (const Node& node : graph.nodes()) {
    if (!def_of(node).traits.joins_in_place) continue;
    const Few<ValueId, 2>& inputs = replaces[static_cast<size_t>(node.outputs[0])];
    invariant(inputs.size() == 1, "graph '{}': what is joined at '{}' replaces {} inputs", graph.name(),
              graph.scope_of(node), inputs.size());
    int64_t offset = 0;
    for (const ValueId part : node.inputs) {
      out.into[static_cast<size_t>(part)] = inputs[0];
      out.offset[static_cast<size_t>(part)] = offset;
      offset += graph.type(part).bytes();
    }
    out.into[static_cast<size_t>(node.outputs[0])] = inputs[0];
  }
  return out;
}

void verify_parts(const ExecutionPlan& plan, std::vector<std::string>& out) {
  const auto value = [&](int id) -> const PlanValue& { return plan.values[static_cast<size_t>(id)]; };
  const auto check = [&](size_t i, int part, int whole, int64_t before) {
    const PlanValue& of = value(part);
    const PlanValue& in = value(whole);
    if (of.buffer == in.buffer && of.offset == in.offset + before) return;
    out.push_back(fmt::format("action {} ({}): value {} does not lie where its rows of value {} are", i,
                              plan.actions[i].op->name, part, whole));
  };
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    if (action.in.empty() || action.out.empty()) continue;
    if (action.op == &structural().part)
      check(i, action.out[0], action.in[0], bytes_before_part(*action.op, action.attrs, value(action.in[0]).type));
    if (!action.op->traits.joins_in_place) continue;
    int64_t before = 0;
    for (const int part : action.in) {
      check(i, part, action.out[0], before);
      before += value(part).type.bytes();
    }
  }
}

}  // namespace trireme
