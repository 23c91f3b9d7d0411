// iota: y[i] = coordinate of the element in dimension dim. The local form reads where its piece
// lies.
#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/elementwise/elementwise.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace iota_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<IotaAttrs>();
  require(is_number(attrs.dtype), "iota: the element type must be a number, not {}", said(attrs.dtype));
  require(attrs.dim >= 0 && attrs.dim < attrs.shape.rank(), "iota: no dimension {} in shape {}; dimensions are 0 to {}",
          attrs.dim, said(attrs.shape), attrs.shape.rank() - 1);
  return {{attrs.dtype, attrs.shape}};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("->*", args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  const int dim = static_cast<int>(args.attrs.as<IotaAttrs>().dim);
  const Shape& shape = args.out[0].type.shape;
  const int64_t start = args.out_start(0, dim);
  const int64_t step = shape.strides()[static_cast<size_t>(dim)];
  with_number("iota", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    int64_t i = 0;
    for (T& y : args.out[0].as<T>()) {
      y = narrow<T>(static_cast<Wide<T>>(start + i++ / step % shape[dim]));
    }
  });
}

std::vector<Example> examples() {
  return {{{}, Attrs::of(IotaAttrs{DType::kI32, {6}, 0})},
          {{}, Attrs::of(IotaAttrs{DType::kF32, {2, 6, 3}, 1})},
          {{}, Attrs::of(IotaAttrs{DType::kI64, {4, 6}, 1})}};
}

}  // namespace iota_op

namespace ops {
extern const OpDef iota{
    {"iota", &Attrs::parse<IotaAttrs>},
    {
        .doc = "y = the coordinate in dimension dim",
        .inputs = "",
        .infer = iota_op::infer,
        .grad = Facet<GradFn>::none("no operands"),
        .shard = iota_op::shard,
        .cost = iota_op::cost,
        .kernel = iota_op::kernel,
        .traits = {.reads_place = true},
        .examples = iota_op::examples,
    },
};
}  // namespace ops

Tensor iota(Graph& graph, TensorType type, int dim) {
  const Attrs attrs = Attrs::of(IotaAttrs{type.dtype, type.shape, dim});
  iota_op::infer({{}, attrs});
  const NodeId node = graph.add_node(ops::iota, attrs, {}, std::span<const TensorType>(&type, 1));
  return {graph, graph.node(node).outputs[0]};
}

}  // namespace trireme
