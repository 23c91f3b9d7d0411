#include "trireme/op/structural.h"

#include "trireme/op/build.h"
#include "trireme/op/registry.h"

namespace trireme {

Tensor add_gradients(const Tensor& a, const Tensor& b) { return apply1(op("add"), {a, b}); }

Tensor constant(Graph& graph, const TensorType& type, double value) {
  const NodeId node = graph.add_node(op("full"), Attrs::of(FullAttrs{type.dtype, type.shape, value}), {},
                                     std::span<const TensorType>(&type, 1));
  return {graph, graph.node(node).outputs[0]};
}

}  // namespace trireme
