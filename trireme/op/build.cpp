#include "trireme/op/build.h"

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

std::vector<TensorType> infer(const OpDef& op, std::span<const TensorType> types, const Attrs& attrs) {
  const int want = arity(op.inputs);
  require(want < 0 || static_cast<int>(types.size()) == want, "{}: {} operands given; it takes ({})", op.name,
          types.size(), op.inputs);
  return op.infer.get()({types, attrs});
}

}  // namespace

std::vector<Tensor> apply(const OpDef& op, std::span<const Tensor> in, Attrs attrs) {
  require(!in.empty() && in.front(), "{}: the first operand is not a tensor of a traced graph", op.name);
  Graph& graph = in.front().graph();
  std::vector<TensorType> types;
  std::vector<ValueId> ids;
  for (const Tensor& tensor : in) {
    require(static_cast<bool>(tensor) && &tensor.graph() == &graph, "{}: operands come from different graphs",
            op.name);
    types.push_back(tensor.type());
    ids.push_back(tensor.id());
  }
  std::vector<TensorType> results;
  try {
    results = infer(op, types, attrs);
  } catch (Error& e) {
    const std::string_view scope = graph.scope();
    e.note(fmt::format("in {}({}){}", op.name, list_types(types), scope.empty() ? "" : fmt::format(" at '{}'", scope)));
    throw;
  }
  const NodeId node = graph.add_node(op, std::move(attrs), ids, results);
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

std::vector<std::string> verify(const Graph& graph) {
  std::vector<std::string> out = check_structure(graph);
  for (const Node& node : graph.nodes()) {
    const auto where = fmt::format("%{} {}", node.outputs.empty() ? -1 : node.outputs.front(), node.op->name);
    std::vector<TensorType> types;
    for (const ValueId input : node.inputs) types.push_back(graph.type(input));
    try {
      const std::vector<TensorType> results = infer(def_of(node), types, node.attrs);
      if (results.size() != node.outputs.size()) {
        out.push_back(fmt::format("{}: {} results where the op has {}", where, node.outputs.size(),
                                  results.size()));
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
