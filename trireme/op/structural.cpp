#include "trireme/op/structural.h"

#include "trireme/op/build.h"
#include "trireme/op/registry.h"

namespace trireme {

Tensor cast_to(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : apply1(op("cast"), {x}, Attrs::of(CastAttrs{dtype}));
}

bool is_cast(const Node& node) {
  return node.op->name == "cast";
}

bool is_gradient_type(const TensorType& gradient, const TensorType& value) {
  if (gradient == value) return true;
  return gradient.shape == value.shape && gradient.dtype == DType::kF32 && is_floating(value.dtype) &&
         size_of(value.dtype) < size_of(DType::kF32);
}

Tensor add_gradients(const Tensor& a, const Tensor& b) {
  const DType wider = size_of(a.dtype()) >= size_of(b.dtype()) ? a.dtype() : b.dtype();
  return apply1(op("add"), {cast_to(a, wider), cast_to(b, wider)});
}

Tensor constant(Graph& graph, const TensorType& type, double value) {
  const NodeId node = graph.add_node(op("full"), Attrs::of(FullAttrs{type.dtype, type.shape, value}), {},
                                     std::span<const TensorType>(&type, 1));
  return {graph, graph.node(node).outputs[0]};
}

}  // namespace trireme
