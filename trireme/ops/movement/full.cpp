// full: y[...] = value
#include "trireme/ops/ops.h"

namespace trireme {
namespace full_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<FullAttrs>();
  return {{attrs.dtype, attrs.shape}};
}

// Every dimension may be cut: each rank fills its own piece.
ShardingRule shard(const TypeArgs& args) {
  return parse_rule("->*", args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

template <class T>
void fill(const View& out, double value) {
  for (T& element : out.as<T>()) element = static_cast<T>(value);
}

void kernel(const KernelArgs& args) {
  const double value = args.attrs.as<FullAttrs>().value;
  const View& out = args.out[0];
  switch (out.type.dtype) {
    case DType::kF32:
      return fill<float>(out, value);
    case DType::kF64:
      return fill<double>(out, value);
    case DType::kI32:
      return fill<int32_t>(out, value);
    case DType::kI64:
      return fill<int64_t>(out, value);
    case DType::kI8:
      return fill<int8_t>(out, value);
    case DType::kU8:
      return fill<uint8_t>(out, value);
    case DType::kBool:
      return fill<bool>(out, value);
    case DType::kBF16:
      for (BFloat16& element : out.as<BFloat16>()) element = BFloat16(static_cast<float>(value));
      return;
    case DType::kF16:
      fail(ErrorKind::kUnsupported, "full: f16 is not computed with; use f32 or bf16");
  }
}

std::vector<Example> examples() {
  return {{.in = {}, .attrs = Attrs::of(FullAttrs{DType::kF32, {4, 6}, 1.5})},
          {.in = {}, .attrs = Attrs::of(FullAttrs{DType::kI64, {}, 3})}};
}

}  // namespace full_op

namespace ops {
extern const OpDef full{
    {"full", &Attrs::parse<FullAttrs>},
    {
        .doc = "y[...] = value",
        .inputs = "",
        .infer = full_op::infer,
        .grad = Facet<GradFn>::none("no operands"),
        .shard = full_op::shard,
        .cost = full_op::cost,
        .kernel = full_op::kernel,
        .examples = full_op::examples,
    },
};
}  // namespace ops

Tensor full(Graph& graph, TensorType type, double value) {
  const NodeId node = graph.add_node(ops::full, Attrs::of(FullAttrs{type.dtype, type.shape, value}), {},
                                     std::span<const TensorType>(&type, 1));
  return {graph, graph.node(node).outputs[0]};
}

}  // namespace trireme
