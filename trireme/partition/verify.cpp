#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/build.h"
#include "trireme/op/op_def.h"
#include "trireme/partition/frames.h"
#include "trireme/partition/partition.h"

namespace trireme {
namespace {

// What is wrong with one collective between values k of its operands and results, or "".
std::string check_collective(const Program& program, const Node& node, size_t k) {
  const auto in = static_cast<size_t>(node.inputs[k]);
  const auto out = static_cast<size_t>(node.outputs[k]);
  const Layout& before = program.layouts[in];
  const Layout& after = program.layouts[out];
  // In models that are cut by hand layouts say nothing: each rank's piece is a tensor of its own.
  if (program.by_hand || (before.is_replicated() && after.is_replicated())) return "";
  const auto make = def_of(node).collective->result;
  if (make == nullptr) return "is between values that are cut";
  const CutTensor operand{frame(program.whole[in], before, program.mesh), before};
  const CutTensor result{frame(program.whole[out], after, program.mesh), after};
  try {
    const CutTensor right = make(operand, node.attrs, program.mesh);
    if (right.whole != result.whole) {
      return fmt::format("makes {} of a whole {}", to_string(result.whole), to_string(operand.whole));
    }
    if (right.layout == after) return "";
    return fmt::format("makes {} of {}, and its result is taken for {}", to_string(right.layout, program.mesh),
                       to_string(before, program.mesh), to_string(after, program.mesh));
  } catch (const Error& e) {
    return fmt::format("cannot be done to {}: {}", to_string(before, program.mesh), e.text());
  }
}

// What is wrong with the collective's ranks, or with what it makes of the pieces, or "".
std::string check_call(const Program& program, const Node& node) {
  if (std::string wrong = groups_of(node).why_not(program.mesh); !wrong.empty()) return wrong;
  std::vector<TensorType> in, out;
  for (const ValueId id : node.inputs) in.push_back(as_moved(program.graph.type(id)));
  for (const ValueId id : node.outputs) out.push_back(as_moved(program.graph.type(id)));
  try {
    return result_types(def_of(node), in, node.attrs) == out ? "" : "makes pieces of other types than the op gives";
  } catch (const Error& e) {
    return fmt::format("is not one that can be: {}", e.text());
  }
}

void check_collectives(const Program& program, std::vector<std::string>& out) {
  for (const Node& node : program.graph.nodes()) {
    if (!def_of(node).collective) continue;
    if (const std::string wrong = check_call(program, node); !wrong.empty()) {
      const ValueId made = node.outputs.empty() ? kNoValue : node.outputs[0];
      out.push_back(fmt::format("{} that makes %{} {}", node.op->name, made, wrong));
      continue;
    }
    for (size_t k = 0; k < std::min(node.inputs.size(), node.outputs.size()); ++k) {
      const std::string wrong = check_collective(program, node, k);
      if (!wrong.empty()) out.push_back(fmt::format("{} that makes %{} {}", node.op->name, node.outputs[k], wrong));
    }
  }
}

}  // namespace

std::vector<std::string> verify(const Program& program) {
  const Graph& graph = program.graph;
  std::vector<std::string> out = check_structure(graph);
  check_phases(graph, out);
  for (size_t id = 0; id < graph.values().size(); ++id) {
    const TensorType& type = graph.values()[id].type;
    const Shape local = local_shape(program.whole[id], program.layouts[id], program.mesh);
    if (type.shape == local) continue;
    out.push_back(fmt::format("%{} is {} but layout {} of {} gives {}", id, to_string(type),
                              to_string(program.layouts[id], program.mesh), to_string(program.whole[id]),
                              to_string(local)));
  }
  check_collectives(program, out);
  for (const Output& output : graph.outputs()) {
    const Layout& layout = program.layouts[static_cast<size_t>(output.value)];
    if (layout.is_partial()) out.push_back(fmt::format("output '{}' is a partial sum", output.name));
    if (output.updates != kNoValue && layout != program.layouts[static_cast<size_t>(output.updates)]) {
      out.push_back(fmt::format("output '{}' updates an input of another layout", output.name));
    }
  }
  return out;
}

}  // namespace trireme
