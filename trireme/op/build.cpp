#include "trireme/op/build.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/registry.h"

namespace trireme {
namespace {

std::string list_types(std::span<const TensorType> types) {
  std::string out;
  for (const TensorType& type : types) out += (out.empty() ? "" : ", ") + to_string(type);
  return out;
}

// Operands of a signature "a, b": their number, or -1 with a trailing "...".
int arity(std::string_view inputs) {
  if (inputs.ends_with("...")) return -1;
  if (inputs.empty()) return 0;
  int n = 1;
  for (const char c : inputs) n += c == ',' ? 1 : 0;
  return n;
}

// Whether it is a collective of several values, which makes one of each: they may be of several phases.
bool is_bucket(const Node& node) {
  return def_of(node).collective && node.inputs.size() > 1 && node.inputs.size() == node.outputs.size();
}

Phase phase_of(const Graph& graph, ValueId id) {
  for (;;) {
    const Value& value = graph.value(id);
    if (value.producer < 0) return Phase::kForward;
    const Node& node = graph.node(value.producer);
    if (!is_bucket(node)) return node.phase;
    id = node.inputs[static_cast<size_t>(value.index)];
  }
}

// Not before what it reads: code that goes on with gradients is of their phase.
Phase phase_among(const Graph& graph, std::span<const ValueId> operands) {
  Phase phase = graph.mark().phase;
  for (const ValueId id : operands) phase = std::max(phase, phase_of(graph, id));
  return phase;
}

// What gradients and updates have in common with what they are of.
void check_shapes_of_training(const Graph& graph, std::vector<std::string>& out) {
  const auto known = [&](ValueId id) { return id >= 0 && id < static_cast<ValueId>(graph.values().size()); };
  const auto check = [&](ValueId gradient, ValueId of) {
    if (!known(gradient) || !known(of)) return;
    if (gradient == of) out.push_back(fmt::format("%{} is the gradient of itself", of));
    if (graph.type(gradient).shape == graph.type(of).shape) return;
    out.push_back(fmt::format("%{} is {} and the gradient of %{}, which is {}; their shapes must be the same", gradient,
                              to_string(graph.type(gradient)), of, to_string(graph.type(of))));
  };
  for (const auto& [gradient, of] : graph.gradients()) check(gradient, of);
  for (const Update& update : graph.updates()) check(update.gradient, update.parameter);
}

}  // namespace

std::vector<TensorType> result_types(const OpDef& op, std::span<const TensorType> in, const Attrs& attrs) {
  const int want = arity(op.inputs);
  require(want < 0 || static_cast<int>(in.size()) == want, "{}: {} operands given; it takes ({})", op.name, in.size(),
          op.inputs);
  return op.infer.get()({in, attrs});
}

std::vector<Tensor> apply(const OpDef& op, std::span<const Tensor> in, Attrs attrs) {
  require(!in.empty() && in.front(), "{}: the first operand is not a tensor of a traced graph", op.name);
  Graph& graph = in.front().graph();
  std::vector<TensorType> types;
  std::vector<ValueId> ids;
  for (const Tensor& tensor : in) {
    require(static_cast<bool>(tensor) && &tensor.graph() == &graph, "{}: operands come from different graphs", op.name);
    types.push_back(tensor.type());
    ids.push_back(tensor.id());
  }
  std::vector<TensorType> results;
  try {
    results = result_types(op, types, attrs);
  } catch (Error& e) {
    const std::string_view scope = graph.scope();
    e.note(fmt::format("in {}({}){}", op.name, list_types(types), scope.empty() ? "" : fmt::format(" at '{}'", scope)));
    throw;
  }
  const Mark mark = graph.mark();
  graph.set_phase(phase_among(graph, ids));
  const NodeId node = graph.add_node(op, std::move(attrs), ids, results);
  graph.set_mark(mark);
  std::vector<Tensor> out;
  for (const ValueId id : graph.node(node).outputs) out.emplace_back(graph, id);
  return out;
}

std::vector<Tensor> apply(const OpDef& op, std::initializer_list<Tensor> in, Attrs attrs) {
  return apply(op, std::span<const Tensor>(in.begin(), in.size()), std::move(attrs));
}

Tensor apply1(const OpDef& op, std::initializer_list<Tensor> in, Attrs attrs) {
  return apply(op, in, std::move(attrs)).front();
}

double tensor_bytes(const TypeArgs& args) {
  double bytes = 0;
  for (const TensorType& type : args.in) bytes += static_cast<double>(type.bytes());
  for (const TensorType& type : args.out) bytes += static_cast<double>(type.bytes());
  return bytes;
}

void check_phases(const Graph& graph, std::vector<std::string>& out) {
  for (const Node& node : graph.nodes()) {
    if (is_bucket(node)) continue;
    for (const ValueId input : node.inputs) {
      const Phase made = phase_of(graph, input);
      if (made <= node.phase) continue;
      out.push_back(fmt::format("{}{} is of the {} phase and reads %{}, which the {} phase makes", node.op->name,
                                node.outputs.empty() ? "" : fmt::format(" that makes %{}", node.outputs[0]),
                                to_string(node.phase), input, to_string(made)));
    }
  }
}

std::vector<std::string> verify(const Graph& graph) {
  std::vector<std::string> out = check_structure(graph);
  check_phases(graph, out);
  check_shapes_of_training(graph, out);
  for (const Node& node : graph.nodes()) {
    const auto where = fmt::format("%{} {}", node.outputs.empty() ? -1 : node.outputs.front(), node.op->name);
    std::vector<TensorType> types;
    for (const ValueId input : node.inputs) types.push_back(graph.type(input));
    try {
      const std::vector<TensorType> results = result_types(def_of(node), types, node.attrs);
      if (results.size() != node.outputs.size()) {
        out.push_back(fmt::format("{}: {} results where the op has {}", where, node.outputs.size(), results.size()));
        continue;
      }
      for (size_t i = 0; i < results.size(); ++i) {
        if (results[i] == graph.type(node.outputs[i])) continue;
        out.push_back(fmt::format("{}: result {} is {}; the op gives {}", where, i,
                                  to_string(graph.type(node.outputs[i])), to_string(results[i])));
      }
    } catch (const Error& e) {
      out.push_back(fmt::format("{}: {}", where, e.text()));
    }
  }
  return out;
}

}  // namespace trireme
