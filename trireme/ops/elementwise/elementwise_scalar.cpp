// scale, add_scalar, pow_scalar: y = f(x, s) with a number s known when the model is written; and
// clamp.
#include <algorithm>
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/elementwise/elementwise.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace scalar_ops {

double value_of(const Attrs& attrs) {
  return attrs.as<ScalarAttrs>().value;
}

struct Scale {
  static constexpr std::string_view name = "scale", doc = "y = value x";
  static constexpr bool kIntegers = true, kLinear = true;
  template <class W>
  static W f(W x, W value) {
    return x * value;
  }
  static Tensor grad(const Tensor&, const Tensor& dy, double value) { return scale(dy, value); }
};

struct AddScalar {
  static constexpr std::string_view name = "add_scalar", doc = "y = x + value";
  static constexpr bool kIntegers = true, kLinear = false;
  template <class W>
  static W f(W x, W value) {
    return x + value;
  }
  static Tensor grad(const Tensor&, const Tensor& dy, double) { return dy; }
};

struct PowScalar {
  static constexpr std::string_view name = "pow_scalar", doc = "y = x ^ value";
  static constexpr bool kIntegers = false, kLinear = false;
  static double f(double x, double value) { return std::pow(x, value); }
  static Tensor grad(const Tensor& x, const Tensor& dy, double value) {
    if (value == 0) return full(x.graph(), x.type(), 0);
    return mul(scale(dy, value), pow_scalar(x, value - 1));
  }
};

template <class F>
std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  require(is_floating(x.dtype) || (F::kIntegers && is_number(x.dtype)), "{}: the operand must be {} (x {})", F::name,
          F::kIntegers ? "a number" : "of a floating type", said(x));
  const double value = value_of(args.attrs);
  require(is_floating(x.dtype) || value == std::trunc(value), "{}: {} is not a whole number and x is {}; cast x first",
          F::name, value, said(x));
  return {x};
}

template <class F>
std::vector<Tensor> grad(const GradArgs& args) {
  return {F::grad(args.in[0], args.dout[0], value_of(args.attrs))};
}

template <class F>
ShardingRule shard(const TypeArgs& args) {
  RuleOptions options;
  if (F::kLinear) options.linear = {{0}};
  return parse_rule("*->*", args.in, args.out, options);
}

Cost cost(const TypeArgs& args) {
  return {.flops = static_cast<double>(args.out[0].elements()), .bytes = tensor_bytes(args)};
}

template <class F>
void kernel(const KernelArgs& args) {
  with_number(F::name, args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    const W value = static_cast<W>(value_of(args.attrs));
    const auto x = args.in[0].as<T>();
    const auto y = args.out[0].as<T>();
    for (size_t i = 0; i < y.size(); ++i) y[i] = narrow<T>(static_cast<W>(F::f(widen(x[i]), value)));
  });
}

template <class F>
std::vector<Example> examples() {
  const std::vector<Fill> fill = {uniform(0.5, 2)};
  const Attrs attrs = Attrs::of(ScalarAttrs{-1.5});
  std::vector<Example> out = {
      {{f32({4, 6})}, attrs, fill}, {{f32({})}, attrs, fill}, {{{DType::kBF16, {2, 3, 4}}}, attrs, fill}};
  if (F::kIntegers) {
    out.push_back({{i32({6, 4})}, Attrs::of(ScalarAttrs{3}), {integers(-9, 9)}});
  } else {  // powers, of 0 too
    for (const double power : {0, 2}) out.push_back({{f32({4, 6})}, Attrs::of(ScalarAttrs{power}), {integers(-1, 2)}});
  }
  return out;
}

template <class F>
OpDef with_scalar() {
  return {
      {F::name, &Attrs::parse<ScalarAttrs>},
      {
          .doc = F::doc,
          .inputs = "x",
          .infer = infer<F>,
          .grad = grad<F>,
          .shard = shard<F>,
          .cost = cost,
          .kernel = kernel<F>,
          .traits = {.elementwise = true},
          .may_overwrite = {{0, 0}},
          .examples = examples<F>,
      },
  };
}

std::vector<TensorType> infer_clamp(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ClampAttrs>();
  require(is_floating(args.in[0].dtype), "clamp: the operand must be of a floating type (x {})", said(args.in[0]));
  require(attrs.low <= attrs.high, "clamp: low {} is above high {}; it must not be", attrs.low, attrs.high);
  return {args.in[0]};
}

// Elements that were moved to a bound get none.
std::vector<Tensor> grad_clamp(const GradArgs& args) {
  return {mul(args.dout[0], cast(equal(args.in[0], args.out[0]), args.in[0].dtype()))};
}

ShardingRule shard_clamp(const TypeArgs& args) {
  return parse_rule("*->*", args.in, args.out);
}

void kernel_clamp(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<ClampAttrs>();
  with_floating("clamp", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = args.in[0].as<T>();
    const auto y = args.out[0].as<T>();
    for (size_t i = 0; i < y.size(); ++i) y[i] = store<T>(std::clamp(load(x[i]), attrs.low, attrs.high));
  });
}

std::vector<Example> examples_clamp() {
  const Attrs attrs = Attrs::of(ClampAttrs{-0.41, 0.53});
  return {{{f32({4, 6})}, attrs, {distinct(-1, 1)}}, {{{DType::kBF16, {4, 6}}}, attrs, {distinct(-1, 1)}}};
}

}  // namespace scalar_ops

namespace ops {
extern const OpDef scale = scalar_ops::with_scalar<scalar_ops::Scale>();
extern const OpDef add_scalar = scalar_ops::with_scalar<scalar_ops::AddScalar>();
extern const OpDef pow_scalar = scalar_ops::with_scalar<scalar_ops::PowScalar>();
extern const OpDef clamp{
    {"clamp", &Attrs::parse<ClampAttrs>},
    {
        .doc = "y = min(max(x, low), high)",
        .inputs = "x",
        .infer = scalar_ops::infer_clamp,
        .grad = scalar_ops::grad_clamp,
        .shard = scalar_ops::shard_clamp,
        .cost = scalar_ops::cost,
        .kernel = scalar_ops::kernel_clamp,
        .traits = {.elementwise = true},
        .may_overwrite = {{0, 0}},
        .examples = scalar_ops::examples_clamp,
    },
};
}  // namespace ops

Tensor scale(const Tensor& x, double value) {
  return apply1(ops::scale, {x}, Attrs::of(ScalarAttrs{value}));
}
Tensor add_scalar(const Tensor& x, double value) {
  return apply1(ops::add_scalar, {x}, Attrs::of(ScalarAttrs{value}));
}
Tensor pow_scalar(const Tensor& x, double value) {
  return apply1(ops::pow_scalar, {x}, Attrs::of(ScalarAttrs{value}));
}
Tensor clamp(const Tensor& x, double low, double high) {
  return apply1(ops::clamp, {x}, Attrs::of(ClampAttrs{low, high}));
}

Tensor operator+(const Tensor& x, double value) {
  return add_scalar(x, value);
}
Tensor operator+(double value, const Tensor& x) {
  return add_scalar(x, value);
}
Tensor operator-(const Tensor& x, double value) {
  return add_scalar(x, -value);
}
Tensor operator-(double value, const Tensor& x) {
  return add_scalar(neg(x), value);
}
Tensor operator*(const Tensor& x, double value) {
  return scale(x, value);
}
Tensor operator*(double value, const Tensor& x) {
  return scale(x, value);
}
Tensor operator/(const Tensor& x, double value) {
  return scale(x, 1 / value);
}
Tensor operator/(double value, const Tensor& x) {
  return scale(reciprocal(x), value);
}

}  // namespace trireme
