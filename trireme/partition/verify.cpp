#include <algorithm>
#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/op/build.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"
#include "trireme/op/structural.h"
#include "trireme/partition/frames.h"
#include "trireme/partition/partition.h"

namespace trireme {
namespace {

// The reshard step that a collective of the program does; none for `broadcast`, which no reshard is.
std::optional<ReshardStep> step_of(const Node& node) {
  using Kind = ReshardStep::Kind;
  static const std::map<std::string_view, Kind> kKinds{{"shard_slice", Kind::kSlice},
                                                       {"all_gather", Kind::kAllGather},
                                                       {"all_to_all", Kind::kAllToAll},
                                                       {"all_reduce", Kind::kAllReduce},
                                                       {"reduce_scatter", Kind::kReduceScatter}};
  const auto kind = kKinds.find(node.op->name);
  if (kind == kKinds.end()) return std::nullopt;
  const auto& attrs = node.attrs.as<CollectiveAttrs>();
  ReshardStep step{.kind = kind->second};
  if (step.kind != Kind::kAllReduce) step.dim = static_cast<int>(attrs.dim);
  if (step.kind == Kind::kAllToAll) step.from_dim = static_cast<int>(attrs.from_dim);
  step.axes.assign(attrs.axes.begin(), attrs.axes.end());
  if (attrs.reduction == "max") step.reduction = Reduction::kMax;
  if (attrs.reduction == "min") step.reduction = Reduction::kMin;
  return step;
}

// Windows are another tensor, cut by the same axes: all windows side by side.
std::string check_windows(const Program& program, const Node& node) {
  const auto& attrs = node.attrs.as<WindowAttrs>();
  const auto dim = static_cast<int>(attrs.dim);
  const bool take = node.op->name == "take_windows";
  const auto blocks = static_cast<size_t>(take ? node.inputs[0] : node.outputs[0]);
  const auto windows = static_cast<size_t>(take ? node.outputs[0] : node.inputs[0]);
  Shape whole = program.whole[blocks];
  if (program.layouts[blocks] != program.layouts[windows]) return "changes the layout";
  const std::vector<int>& axes = program.layouts[blocks].dims[static_cast<size_t>(dim)];
  if (!std::ranges::equal(axes, attrs.axes)) return "is over other axes than those that cut its dimension";
  if (whole[dim] != attrs.extent || program.mesh.size_of(axes) != attrs.size)
    return "says another size than its blocks have";
  whole[dim] = attrs.size * attrs.length;
  return whole == program.whole[windows]
             ? ""
             : fmt::format("makes {} of a whole {}", to_string(program.whole[windows]), to_string(whole));
}

// What is wrong with one collective between values k of its operands and results, or "".
std::string check_collective(const Program& program, const Node& node, size_t k) {
  const auto in = static_cast<size_t>(node.inputs[k]);
  const auto out = static_cast<size_t>(node.outputs[k]);
  const Layout& before = program.layouts[in];
  const Layout& after = program.layouts[out];
  // In models that are cut by hand layouts say nothing: each rank's piece is a tensor of its own.
  if (program.by_hand || (before.is_replicated() && after.is_replicated())) return "";
  if (node.op->name == "take_windows" || node.op->name == "add_windows") return check_windows(program, node);
  // A piece that goes on to the next rank is the same part of another tensor.
  if (node.op->name == "ring_shift" && before == after) return "";
  const std::optional<ReshardStep> step = step_of(node);
  if (!step) return "is between values that are cut";
  const Shape had = frame(program.whole[in], before, program.mesh);
  const Shape made = frame(program.whole[out], after, program.mesh);
  if (had != made) return fmt::format("makes {} of a whole {}", to_string(made), to_string(had));
  try {
    const int64_t size = program.mesh.size_of(step->axes);
    if (node.attrs.as<CollectiveAttrs>().size != size) {
      return fmt::format("says that {} ranks take part; its axes have {}", node.attrs.as<CollectiveAttrs>().size, size);
    }
    const Layout right = layout_after(*step, before);
    if (right == after) return "";
    return fmt::format("makes {} of {}, and its result is taken for {}", to_string(right, program.mesh),
                       to_string(before, program.mesh), to_string(after, program.mesh));
  } catch (const Error& e) {
    return fmt::format("cannot be done to {}: {}", to_string(before, program.mesh), e.text());
  }
}

void check_collectives(const Program& program, std::vector<std::string>& out) {
  for (const Node& node : program.graph.nodes()) {
    if (!def_of(node).traits.collective) continue;
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
