// huber: y = e^2 / 2 where |e| <= delta, else delta (|e| - delta / 2), with e = x - target (Huber, 1964): a loss that
// grows as a square near the target and as a line far from it.
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace huber_op {

struct HuberAttrs {
  double delta = 1;
  static constexpr auto fields() { return std::tuple{field("delta", &HuberAttrs::delta)}; }
};

double delta_of(const Attrs& attrs) {
  return attrs.as<HuberAttrs>().delta;
}

std::vector<TensorType> infer(const InferArgs& args) {
  require(args.in[0] == args.in[1] && is_floating(args.in[0].dtype),
          "huber: x and target must be of one floating type and shape (x {}, target {})", said(args.in[0]),
          said(args.in[1]));
  require(delta_of(args.attrs) > 0, "huber: delta is {}; it must be above 0", delta_of(args.attrs));
  return {args.in[0]};
}

std::vector<Tensor> grad(const GradArgs& args) {
  const double delta = delta_of(args.attrs);
  const Tensor dx = mul(args.dout[0], clamp(sub(args.in[0], args.in[1]), -delta, delta));
  return {dx, args.wanted[1] ? neg(dx) : Tensor()};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*,*->*", args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 5.0 * static_cast<double>(args.out[0].elements()), .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  const double delta = delta_of(args.attrs);
  with_floating("huber", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = args.in[0].as<T>();
    const auto target = args.in[1].as<T>();
    const auto y = args.out[0].as<T>();
    for (size_t i = 0; i < y.size(); ++i) {
      const double e = std::abs(load(x[i]) - load(target[i]));
      y[i] = store<T>(e <= delta ? 0.5 * e * e : delta * (e - 0.5 * delta));
    }
  });
}

std::vector<Example> examples() {
  const TensorType half{DType::kBF16, {2, 3, 4}};
  return {{{f32({4, 6}), f32({4, 6})}, Attrs::of(HuberAttrs{1}), {uniform(-3, 3), uniform(-1, 1)}},
          {{f32({6}), f32({6})}, Attrs::of(HuberAttrs{0.25})},
          {{half, half}, Attrs::of(HuberAttrs{1})}};
}

}  // namespace huber_op

namespace ops {
extern const OpDef huber{
    {"huber", &Attrs::parse<huber_op::HuberAttrs>},
    {
        .doc = "y = e^2/2 where |e| <= delta, else delta (|e| - delta/2), e = x - target",
        .inputs = "x, target",
        .infer = huber_op::infer,
        .grad = huber_op::grad,
        .shard = huber_op::shard,
        .cost = huber_op::cost,
        .kernel = huber_op::kernel,
        .traits = {.elementwise = true},
        .may_overwrite = {{0, 0}, {0, 1}},
        .examples = huber_op::examples,
    },
};
}  // namespace ops

Tensor huber(const Tensor& x, const Tensor& target, double delta) {
  return apply1(ops::huber, {x, target}, Attrs::of(huber_op::HuberAttrs{delta}));
}

}  // namespace trireme
