// cast: y = x in another element type. Floating to integer rounds toward zero; to bool asks whether
// x is not zero.
#include "trireme/op/structural.h"
#include "trireme/ops/elementwise/elementwise.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/with_element.h"

namespace trireme {
namespace cast_op {

std::vector<TensorType> infer(const InferArgs& args) {
  return {{args.attrs.as<CastAttrs>().dtype, args.in[0].shape}};
}

std::vector<Tensor> grad(const GradArgs& args) {
  return {args.wanted[0] ? cast(args.dout[0], args.in[0].dtype()) : Tensor{}};
}

// Partial sums pass only to a wider floating type: narrowing each term would round what the sum
// does not.
ShardingRule shard(const TypeArgs& args) {
  RuleOptions options;
  const DType from = args.in[0].dtype;
  const DType to = args.out[0].dtype;
  if (is_floating(from) && is_floating(to) && size_of(to) > size_of(from)) options.linear = {{0}};
  return parse_rule("*->*", args.in, args.out, options);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

template <class From, class To>
void convert(std::span<From> x, std::span<To> y) {
  for (size_t i = 0; i < y.size(); ++i) {
    if constexpr (std::is_same_v<To, bool>) {
      y[i] = widen(x[i]) != 0;
    } else {
      y[i] = narrow<To>(static_cast<Wide<To>>(widen(x[i])));
    }
  }
}

void kernel(const KernelArgs& args) {
  with_element("cast", args.in[0].type.dtype, [&](auto from) {
    with_element("cast", args.out[0].type.dtype,
                 [&](auto to) { convert(args.in[0].as<decltype(from)>(), args.out[0].as<decltype(to)>()); });
  });
}

std::vector<Example> examples() {
  const auto to = [](DType dtype) { return Attrs::of(CastAttrs{dtype}); };
  return {{{f32({4, 6})}, to(DType::kBF16)},
          {{{DType::kBF16, {4, 6}}}, to(DType::kF32)},
          {{f32({4, 6})}, to(DType::kF64)},
          {{f32({4, 6})}, to(DType::kI32), {uniform(-9, 9)}},
          {{i64({6})}, to(DType::kF32), {integers(-9, 9)}},
          {{{DType::kBool, {6}}}, to(DType::kF32), {integers(0, 2)}},
          {{i32({6})}, to(DType::kBool), {integers(-1, 2)}}};
}

}  // namespace cast_op

namespace ops {
extern const OpDef cast{
    {"cast", &Attrs::parse<CastAttrs>},
    {
        .doc = "y = x in another element type",
        .inputs = "x",
        .infer = cast_op::infer,
        .grad = cast_op::grad,
        .shard = cast_op::shard,
        .cost = cast_op::cost,
        .kernel = cast_op::kernel,
        .traits = {.elementwise = true},
        .examples = cast_op::examples,
    },
};
}  // namespace ops

Tensor cast(const Tensor& x, DType dtype) {
  return cast_to(x, dtype);
}

}  // namespace trireme
