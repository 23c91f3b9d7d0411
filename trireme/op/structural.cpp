#include "trireme/op/structural.h"

#include "trireme/op/build.h"
#include "trireme/op/registry.h"

namespace trireme {

const Structural& structural() {
  static const Structural kOps{.add = op("add"),
                               .maximum = op("maximum"),
                               .minimum = op("minimum"),
                               .scale = op("scale"),
                               .cast = op("cast"),
                               .full = op("full"),
                               .reshape = op("reshape"),
                               .slice = op("slice"),
                               .split = op("split"),
                               .concat = op("concat"),
                               .pad = op("pad"),
                               .fill_beyond = op("fill_beyond"),
                               .take_windows = op("take_windows"),
                               .add_windows = op("add_windows"),
                               .fused_rows = op("fused_rows"),
                               .send = op("send"),
                               .recv = op("recv"),
                               .move = op("move"),
                               .part = op("part"),
                               .join = op("join"),
                               .take_rows = op("take_rows"),
                               .put_rows = op("put_rows"),
                               .add_rows = op("add_rows"),
                               .merge_rows = op("merge_rows")};
  return kOps;
}

const OpDef& Structural::reduced(Reduction reduction) const {
  if (reduction == Reduction::kMax) return maximum;
  return reduction == Reduction::kMin ? minimum : add;
}

const OpDef& Structural::step(ReshardStep::Kind kind) const {
  for (const OpDef* each : all_ops()) {
    if (each->collective && each->collective->step == kind) return *each;
  }
  fail(ErrorKind::kInternal, "no op does the reshard step {}", to_string(kind));
}

bool does(const Node& node, ReshardStep::Kind kind) {
  const std::optional<Collective>& collective = def_of(node).collective;
  return collective && collective->step == kind;
}

Tensor cast_to(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : apply1(structural().cast, {x}, Attrs::of(CastAttrs{dtype}));
}

bool is_cast(const Node& node) {
  return node.op == &structural().cast;
}

bool is_as_stored(const Graph& graph, ValueId id) {
  const NodeId producer = graph.value(id).producer;
  return producer < 0 || (is_cast(graph.node(producer)) && graph.value(graph.node(producer).inputs[0]).producer < 0);
}

bool brings_pieces(const Node& node) {
  using enum ReshardStep::Kind;
  const bool resizes = node.op == &structural().slice || node.op == &structural().pad;
  return node.inputs.size() == 1 && (does(node, kAllGather) || does(node, kAllToAll) || does(node, kSlice) || resizes);
}

ValueId brought_parameter(const Graph& graph, ValueId id, std::string* how) {
  for (NodeId producer = graph.value(id).producer; producer >= 0; producer = graph.value(id).producer) {
    const Node& node = graph.node(producer);
    if (!is_cast(node) && !brings_pieces(node)) return kNoValue;
    if (how != nullptr) *how += std::string(node.op->name) + node.attrs.text();
    id = node.inputs[0];
  }
  return graph.inputs()[static_cast<size_t>(graph.value(id).index)].role == Role::kParameter ? id : kNoValue;
}

bool is_gradient_type(const TensorType& gradient, const TensorType& value) {
  if (gradient == value) return true;
  return gradient.shape == value.shape && gradient.dtype == DType::kF32 && is_floating(value.dtype) &&
         size_of(value.dtype) < size_of(DType::kF32);
}

Tensor add_gradients(const Tensor& a, const Tensor& b) {
  const DType wider = size_of(a.dtype()) >= size_of(b.dtype()) ? a.dtype() : b.dtype();
  return apply1(structural().add, {cast_to(a, wider), cast_to(b, wider)});
}

Tensor constant(Graph& graph, const TensorType& type, double value) {
  const NodeId node = graph.add_node(structural().full, Attrs::of(FullAttrs{type.dtype, type.shape, value}), {},
                                     std::span<const TensorType>(&type, 1));
  return {graph, graph.node(node).outputs[0]};
}

}  // namespace trireme
