// gelu: y = x P(t < x) for a standard normal t; and gelu_grad(x, dy). With `approximate`, GPT-2's
// form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
#include <cmath>
#include <numbers>

#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace gelu_op {

const double kInner = std::sqrt(2 / std::numbers::pi);
constexpr double kCubic = 0.044715;

bool approximate(const Attrs& attrs) {
  return attrs.as<GeluAttrs>().approximate;
}

double value(double x, bool approximate) {
  if (approximate) return 0.5 * x * (1 + std::tanh(kInner * (x + kCubic * x * x * x)));
  return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
}

double derivative(double x, bool approximate) {
  if (approximate) {
    const double t = std::tanh(kInner * (x + kCubic * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kInner * (1 + 3 * kCubic * x * x);
  }
  const double density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * density;
}

std::vector<TensorType> infer(const InferArgs& args) {
  require(is_floating(args.in[0].dtype), "gelu: the operand must be of a floating type (x {})", said(args.in[0]));
  return {args.in[0]};
}

std::vector<Tensor> grad(const GradArgs& args) {
  return {gelu_grad(args.in[0], args.dout[0], approximate(args.attrs))};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*->*", args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 16.0 * static_cast<double>(args.out[0].elements()), .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  with_floating("gelu", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = args.in[0].as<T>();
    const auto y = args.out[0].as<T>();
    for (size_t i = 0; i < y.size(); ++i) y[i] = store<T>(value(load(x[i]), approximate(args.attrs)));
  });
}

std::vector<Example> examples() {
  const Attrs erf = Attrs::of(GeluAttrs{false});
  const Attrs tanh = Attrs::of(GeluAttrs{true});
  return {{{f32({4, 6})}, erf, {uniform(-3, 3)}},
          {{f32({4, 6})}, tanh, {uniform(-3, 3)}},
          {{{DType::kBF16, {2, 3, 4}}}, tanh}};
}

std::vector<TensorType> infer_grad(const InferArgs& args) {
  require(args.in[0] == args.in[1] && is_floating(args.in[0].dtype),
          "gelu_grad: operands must be of one floating type and shape ({}, {})", said(args.in[0]), said(args.in[1]));
  return {args.in[1]};
}

ShardingRule shard_grad(const TypeArgs& args) {
  return parse_rule("*,*->*", args.in, args.out, {.linear = {{1}}});
}

Cost cost_grad(const TypeArgs& args) {
  return {.flops = 24.0 * static_cast<double>(args.out[0].elements()), .bytes = tensor_bytes(args)};
}

void kernel_grad(const KernelArgs& args) {
  with_floating("gelu_grad", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = args.in[0].as<T>();
    const auto dy = args.in[1].as<T>();
    const auto dx = args.out[0].as<T>();
    for (size_t i = 0; i < dx.size(); ++i) {
      dx[i] = store<T>(load(dy[i]) * derivative(load(x[i]), approximate(args.attrs)));
    }
  });
}

std::vector<Example> examples_grad() {
  const TensorType half{DType::kBF16, {2, 3, 4}};
  return {{{f32({4, 6}), f32({4, 6})}, Attrs::of(GeluAttrs{false}), {uniform(-3, 3)}},
          {{f32({4, 6}), f32({4, 6})}, Attrs::of(GeluAttrs{true}), {uniform(-3, 3)}},
          {{half, half}, Attrs::of(GeluAttrs{true})}};
}

}  // namespace gelu_op

namespace ops {
extern const OpDef gelu{
    {"gelu", &Attrs::parse<GeluAttrs>},
    {
        .doc = "y = x P(t < x), t standard normal",
        .inputs = "x",
        .infer = gelu_op::infer,
        .grad = gelu_op::grad,
        .shard = gelu_op::shard,
        .cost = gelu_op::cost,
        .kernel = gelu_op::kernel,
        .traits = {.elementwise = true},
        .may_overwrite = {{0, 0}},
        .examples = gelu_op::examples,
    },
};
extern const OpDef gelu_grad{
    {"gelu_grad", &Attrs::parse<GeluAttrs>},
    {
        .doc = "dx = dy gelu'(x)",
        .inputs = "x, dy",
        .infer = gelu_op::infer_grad,
        .grad = Facet<GradFn>::none("training needs first derivatives; write gelu with erf or tanh for more"),
        .shard = gelu_op::shard_grad,
        .cost = gelu_op::cost_grad,
        .kernel = gelu_op::kernel_grad,
        .traits = {.elementwise = true},
        .may_overwrite = {{0, 0}, {0, 1}},
        .examples = gelu_op::examples_grad,
    },
};
}  // namespace ops

Tensor gelu(const Tensor& x, bool approximate) {
  return apply1(ops::gelu, {x}, Attrs::of(GeluAttrs{approximate}));
}
Tensor gelu_grad(const Tensor& x, const Tensor& dy, bool approximate) {
  return apply1(ops::gelu_grad, {x, dy}, Attrs::of(GeluAttrs{approximate}));
}

}  // namespace trireme
