// broadcast_to: y = x repeated along missing dimensions and those of size 1. Elementwise ops
// broadcast by themselves; this is for where the repeated tensor itself is wanted, as in the
// gradient of a sum.
#include "trireme/base/said.h"
#include "trireme/ops/elementwise/elementwise.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/with_element.h"

namespace trireme {
namespace broadcast_to_op {

struct BroadcastToAttrs {
  Shape shape;
  static constexpr auto fields() { return std::tuple{field("shape", &BroadcastToAttrs::shape)}; }
};

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  const TensorType y{x.dtype, args.attrs.as<BroadcastToAttrs>().shape};
  const int missing = y.shape.rank() - x.shape.rank();
  bool fits = missing >= 0;
  for (int dim = 0; fits && dim < x.shape.rank(); ++dim) {
    fits = x.shape[dim] == 1 || x.shape[dim] == y.shape[dim + missing];
  }
  require(fits,
          "broadcast_to: x {} does not broadcast to {}; sizes must be equal or 1 in x, counted "
          "from the last",
          said(x), said(y.shape));
  return {y};
}

std::vector<Tensor> grad(const GradArgs& args) {
  return {sum_to(args.dout[0], args.in[0].shape())};
}

ShardingRule shard(const TypeArgs& args) {
  return broadcast_rule(args, {{0}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  with_element("broadcast_to", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = args.in[0].as<T>();
    BroadcastWalk<1> at(args.out[0].type.shape, {&args.in[0].type.shape});
    for (T& y : args.out[0].as<T>()) {
      y = x[at[0]];
      at.next();
    }
  });
}

std::vector<Example> examples() {
  const auto to = [](std::initializer_list<int64_t> shape) { return Attrs::of(BroadcastToAttrs{Shape(shape)}); };
  return {{{f32({6})}, to({4, 6})},
          {{f32({2, 1, 3})}, to({2, 4, 3})},
          {{f32({})}, to({2, 6})},
          {{i64({4, 1})}, to({2, 4, 6}), {integers(-9, 9)}}};
}

}  // namespace broadcast_to_op

namespace ops {
extern const OpDef broadcast_to{
    {"broadcast_to", &Attrs::parse<broadcast_to_op::BroadcastToAttrs>},
    {
        .doc = "y = x repeated along missing dimensions and those of size 1",
        .inputs = "x",
        .infer = broadcast_to_op::infer,
        .grad = broadcast_to_op::grad,
        .shard = broadcast_to_op::shard,
        .cost = broadcast_to_op::cost,
        .kernel = broadcast_to_op::kernel,
        .examples = broadcast_to_op::examples,
    },
};
}  // namespace ops

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return apply1(ops::broadcast_to, {x}, Attrs::of(broadcast_to_op::BroadcastToAttrs{shape}));
}

}  // namespace trireme
