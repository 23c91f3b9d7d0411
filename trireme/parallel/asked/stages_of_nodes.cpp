// Which stage each node and input is of, given those of scopes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ir/readers.h"
#include "trireme/op/op_def.h"
#include "trireme/op/structural.h"
#include "trireme/parallel/asked/stages.h"

namespace trireme {
namespace {

std::string op_text(const Graph& graph, const Node& node) {
  return fmt::format("{} of '{}'", node.op->name, graph.scope_of(node));
}

// The stages of a node's operands.
struct OperandStages {
  int first = -1, last = -1;  // -1: none is of a stage
  ValueId of_last = kNoValue;
};

OperandStages stages_of_operands(const Node& node, std::span<const int> of_value) {
  OperandStages out;
  for (const ValueId in : node.inputs) {
    const int stage = of_value[static_cast<size_t>(in)];
    if (stage < 0) continue;
    out.first = out.first < 0 ? stage : std::min(out.first, stage);
    if (stage > out.last) out = {out.first, stage, in};
  }
  return out;
}

int forward_stage(const Graph& graph, const Node& node, const ScopeStages& of_scope, const OperandStages& operands) {
  const auto asked = of_scope.find(graph.scope_of(node));
  const int stage = asked != of_scope.end() ? asked->second : std::max(operands.last, 0);
  if (operands.last <= stage) return stage;
  fail(ErrorKind::kInvalidArgument,
       "{} is of stage {} and reads what {} of stage {} makes: in a pipeline values go forward only, so give them "
       "stages in their order",
       op_text(graph, node), stage, op_text(graph, graph.node(graph.value(operands.of_last).producer)), operands.last);
}

// A parameter that ops of later stages read in a narrower type alone is cast on the stage where it lies, so that fewer
// bytes are sent. Of such casts: the node, and that stage. `stages` is of forward ops.
std::vector<std::pair<size_t, int>> casts_before_sending(const Graph& graph, std::span<const int> stages) {
  const Readers readers(graph);
  const std::vector<int> homes = stages_of_inputs(graph, stages);
  std::vector<std::pair<size_t, int>> out;
  for (size_t i = 0; i < homes.size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (input.role != Role::kParameter) continue;
    std::vector<std::pair<size_t, int>> casts;
    const bool all_narrow = std::ranges::all_of(readers.of(input.value), [&](NodeId id) {
      const Node& node = graph.node(id);
      const int stage = stages[static_cast<size_t>(id)];
      if (node.phase == Phase::kUpdate || stage == homes[i]) return true;
      casts.emplace_back(static_cast<size_t>(id), homes[i]);
      return node.phase == Phase::kForward && is_cast(node) &&
             graph.type(node.outputs[0]).bytes() < graph.type(input.value).bytes();
    });
    if (all_narrow) out.insert(out.end(), casts.begin(), casts.end());
  }
  return out;
}

}  // namespace

std::vector<char> depends_on_parameters(const Graph& graph) {
  std::vector<char> values(graph.values().size(), 0);
  for (const Input& input : graph.inputs()) {
    values[static_cast<size_t>(input.value)] = input.role == Role::kParameter || input.role == Role::kState;
  }
  std::vector<char> out;
  for (const Node& node : graph.nodes()) {
    const bool depends =
        std::ranges::any_of(node.inputs, [&](ValueId id) { return values[static_cast<size_t>(id)] != 0; });
    out.push_back(depends);
    for (const ValueId id : node.outputs) values[static_cast<size_t>(id)] = depends;
  }
  return out;
}

std::vector<int> stages_of(const Graph& graph, const ScopeStages& of_scope) {
  const std::vector<char> depends = depends_on_parameters(graph);
  std::vector<int> of_value(graph.values().size(), -1);
  std::vector<int> out(graph.nodes().size(), -1);
  const auto set = [&](size_t i, int stage) {
    out[i] = stage;
    for (const ValueId made : graph.nodes()[i].outputs) of_value[static_cast<size_t>(made)] = stage;
  };
  for (size_t i = 0; i < out.size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.phase == Phase::kForward && depends[i] != 0)
      set(i, forward_stage(graph, node, of_scope, stages_of_operands(node, of_value)));
  }
  for (const auto& [cast, home] : casts_before_sending(graph, out)) set(cast, home);
  for (size_t i = 0; i < out.size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.phase != Phase::kBackward) continue;
    const int of_forward = node.gradient_of < 0 ? -1 : out[static_cast<size_t>(node.gradient_of)];
    set(i, of_forward < 0 ? stages_of_operands(node, of_value).first : of_forward);
  }
  const std::vector<int> inputs = stages_of_inputs(graph, out);
  for (size_t i = 0; i < inputs.size(); ++i) of_value[static_cast<size_t>(graph.inputs()[i].value)] = inputs[i];
  for (size_t i = 0; i < out.size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.phase != Phase::kUpdate) continue;
    int stage = stages_of_operands(node, of_value).last;
    for (const ValueId in : node.inputs) {
      if (graph.value(in).producer < 0 && of_value[static_cast<size_t>(in)] >= 0)
        stage = of_value[static_cast<size_t>(in)];
    }
    set(i, stage);
  }
  return out;
}

std::set<NodeId> nodes_across_stages(const Graph& graph, const ScopeStages& of_scope) {
  std::set<NodeId> out;
  if (of_scope.empty()) return out;
  const std::vector<int> stages = stages_of(graph, of_scope);
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const ValueId in : graph.nodes()[i].inputs) {
      const NodeId producer = graph.value(in).producer;
      if (producer < 0 || stages[static_cast<size_t>(producer)] < 0) continue;
      if (stages[static_cast<size_t>(producer)] != stages[i]) out.insert(static_cast<NodeId>(i));
    }
  }
  return out;
}

std::vector<int> stages_of_inputs(const Graph& graph, std::span<const int> stages) {
  std::vector<int> out(graph.inputs().size(), -1);
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kUpdate}) {
    const std::vector<int> known = out;  // by readers of earlier phases
    for (size_t i = 0; i < stages.size(); ++i) {
      const Node& node = graph.nodes()[i];
      if (node.phase != phase || stages[i] < 0) continue;
      for (const ValueId in : node.inputs) {
        const Value& value = graph.value(in);
        const auto at = static_cast<size_t>(value.index);
        if (value.producer >= 0 || known[at] >= 0) continue;
        const Role role = graph.inputs()[at].role;
        if (role != Role::kParameter && role != Role::kState) continue;
        if (out[at] < 0 || stages[i] < out[at]) out[at] = stages[i];
      }
    }
  }
  for (const Update& update : graph.updates()) {
    const int stage = out[static_cast<size_t>(graph.value(update.parameter).index)];
    for (const ValueId state : update.states) out[static_cast<size_t>(graph.value(state).index)] = stage;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const Role role = graph.inputs()[i].role;
    if (out[i] < 0 && (role == Role::kParameter || role == Role::kState)) out[i] = 0;  // nobody reads it
  }
  return out;
}

}  // namespace trireme
