#include "trireme/grad/gradients.h"

#include "trireme/base/error.h"
#include "trireme/base/said.h"
#include "trireme/ir/gradient_scope.h"
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

// Gradients may be wider than their values (op/structural.h).
void round_to_types_of(std::span<const Tensor> values, std::vector<Tensor>& gradients) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (gradients[i]) gradients[i] = cast_to(gradients[i], values[i].dtype());
  }
}

// Links a gradient to its value, unless an op gives a value of the forward pass for one.
void record(const Tensor& of, const Tensor& gradient) {
  if (!gradient) return;
  Graph& graph = of.graph();
  const NodeId producer = graph.value(gradient.id()).producer;
  if (producer >= 0 && graph.node(producer).phase == Phase::kBackward) graph.add_gradient(of.id(), gradient.id());
}

// Adds what an op gives for an operand to the sum of what its other readers give.
void add_term(const OpDef& def, const Tensor& operand, const Tensor& term, Tensor& sum) {
  invariant(is_gradient_type(term.type(), operand.type()), "{}: the gradient of an operand is {}, the operand {}",
            def.name, said(term.type()), said(operand.type()));
  record(operand, term);
  sum = sum ? add_gradients(sum, term) : term;
  record(operand, sum);
}

}  // namespace

std::vector<Tensor> gradients(const Tensor& loss, std::span<const Tensor> wrt) {
  require(loss.rank() == 0 && is_floating(loss.dtype()),
          "gradients: the loss is {}; it must be a scalar of a floating type, as mean() makes of values",
          said(loss.type()));
  Graph& graph = loss.graph();
  const std::vector<char> depends = dependents(graph, wrt);
  const Mark outer = graph.mark();
  const auto forward_nodes = static_cast<NodeId>(graph.nodes().size());

  std::vector<Tensor> cotangent(graph.values().size());
  graph.set_mark({.phase = Phase::kBackward});
  graph.set_scope("grad");
  cotangent[static_cast<size_t>(loss.id())] = constant(graph, loss.type(), 1);
  record(loss, cotangent[static_cast<size_t>(loss.id())]);

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
      fail(ErrorKind::kUnsupported, "gradients: op '{}' at '{}' has no gradient: {}", def.name, graph.scope_of(node),
           def.grad.reason());
    }
    graph.set_mark({.phase = Phase::kBackward, .gradient_of = id});
    graph.set_scope(gradient_scope(graph.scope_of(node)));
    if (!is_cast(node)) round_to_types_of(out, dout);  // a cast takes it as wide as it comes
    for (size_t i = 0; i < out.size(); ++i) record(out[i], dout[i]);
    const std::vector<Tensor> din = def.grad.get()({in, out, dout, wanted, node.attrs});
    invariant(din.size() == in.size(), "{}: gradient gives {} cotangents for {} operands", def.name, din.size(),
              in.size());
    graph.set_mark({.scope = graph.mark().scope, .phase = Phase::kBackward});  // a sum of gradients is no one node's
    for (size_t i = 0; i < in.size(); ++i) {
      if (wanted[i] && din[i]) add_term(def, in[i], din[i], cotangent[static_cast<size_t>(in[i].id())]);
    }
  }
  graph.set_mark(outer);

  std::vector<Tensor> result;
  for (const Tensor& tensor : wrt) result.push_back(cotangent[static_cast<size_t>(tensor.id())]);
  round_to_types_of(wrt, result);
  for (size_t i = 0; i < wrt.size(); ++i) record(wrt[i], result[i]);
  return result;
}

}  // namespace trireme
