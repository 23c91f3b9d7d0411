#include "trireme/grad/gradients.h"

#include "trireme/base/error.h"
#include "trireme/base/seeded_defect.h"
#include "trireme/op/op_def.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

// Marks the values that depend on one of `wrt`: only these need gradients.
std::vector<char> dependents(const Graph& graph, std::span<const Tensor> wrt) {
  std::vector<char> depends(graph.values().size(), 0);
  for (const Tensor& tensor : wrt) depends[static_cast<size_t>(tensor.id())] = 1;
  for (const Node& node : graph.nodes()) {
    bool any = false;
    for (const ValueId input : node.inputs) any = any || depends[static_cast<size_t>(input)] != 0;
    if (!any) continue;
    for (const ValueId output : node.outputs) {
      depends[static_cast<size_t>(output)] = is_floating(graph.type(output).dtype) ? 1 : 0;
    }
  }
  return depends;
}

// Gradients may be wider than their values (structural.h).
void round_to_types_of(std::span<const Tensor> values, std::vector<Tensor>& gradients) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (gradients[i]) gradients[i] = cast_to(gradients[i], values[i].dtype());
  }
}

}  // namespace

std::vector<Tensor> gradients(const Tensor& loss, std::span<const Tensor> wrt) {
  require(loss.rank() == 0 && is_floating(loss.dtype()), "gradients: the loss is {}; it must be a floating scalar",
          to_string(loss.type()));
  Graph& graph = loss.graph();
  const std::vector<char> depends = dependents(graph, wrt);
  const std::string outer_scope(graph.scope());
  const auto forward_nodes = static_cast<NodeId>(graph.nodes().size());

  std::vector<Tensor> cotangent(graph.values().size());
  graph.set_scope("grad");
  const double start = seeded_defect("grad: the loss counts twice") ? 2 : 1;
  cotangent[static_cast<size_t>(loss.id())] = constant(graph, loss.type(), start);

  for (NodeId id = forward_nodes; id-- > 0;) {
    const Node node = graph.node(id);  // a copy: the graph grows below
    std::vector<Tensor> in, out, dout;
    std::vector<char> wanted;
    bool reached = false;
    bool any_wanted = false;
    for (const ValueId output : node.outputs) {
      out.emplace_back(graph, output);
      dout.push_back(cotangent[static_cast<size_t>(output)]);
      reached = reached || static_cast<bool>(dout.back());
    }
    for (const ValueId input : node.inputs) {
      in.emplace_back(graph, input);
      wanted.push_back(depends[static_cast<size_t>(input)]);
      any_wanted = any_wanted || wanted.back() != 0;
    }
    if (!reached || !any_wanted) continue;

    const OpDef& def = def_of(node);
    if (!def.grad) {
      fail(ErrorKind::kUnsupported, "gradients: op '{}' at '{}' has no gradient: {}", def.name,
           graph.scope_of(node), def.grad.reason());
    }
    graph.set_scope("grad/" + std::string(graph.scope_of(node)));
    graph.set_gradient_of(id);
    if (!is_cast(node)) round_to_types_of(out, dout);  // a cast takes it as wide as it comes
    const std::vector<Tensor> din = def.grad.get()({in, out, dout, wanted, node.attrs});
    invariant(din.size() == in.size(), "{}: gradient gives {} cotangents for {} operands", def.name, din.size(),
              in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      if (!wanted[i] || !din[i]) continue;
      invariant(is_gradient_type(din[i].type(), in[i].type()), "{}: the gradient of operand {} is {}, the operand {}", def.name, i,
                to_string(din[i].type()), to_string(in[i].type()));
      Tensor& sum = cotangent[static_cast<size_t>(in[i].id())];
      graph.set_gradient_of(-1);  // a sum of gradients is no one node's
      if (seeded_defect("grad: of a value read twice one gradient is lost")) sum = {};
      sum = sum ? add_gradients(sum, din[i]) : din[i];
    }
  }
  graph.set_scope(outer_scope);
  graph.set_gradient_of(-1);

  std::vector<Tensor> result;
  for (const Tensor& tensor : wrt) result.push_back(cotangent[static_cast<size_t>(tensor.id())]);
  round_to_types_of(wrt, result);
  return result;
}

}  // namespace trireme
