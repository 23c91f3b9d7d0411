// neg, abs, sign, exp, log, sqrt, rsqrt, reciprocal, square, tanh, sigmoid, erf, sin, cos, relu,
// silu, logical_not: y = f(x) element by element; and relu_grad, silu_grad: f(a, dy) of one shape.
#include <cmath>
#include <numbers>

#include "trireme/base/said.h"
#include "trireme/ops/elementwise/elementwise.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace unary_ops {

// A row of the table below has: name, doc, f, grad, and where it differs from these defaults:
struct Floating {
  static constexpr bool kIntegers = false;  // whether it takes i32 and i64
  static constexpr bool kLinear = false;
  static constexpr double kFlops = 1;
  static Fill fill() { return uniform(-1, 1); }
};
struct Number : Floating {
  static constexpr bool kIntegers = true;
};

struct Neg : Number {
  static constexpr std::string_view name = "neg", doc = "y = -x";
  static constexpr bool kLinear = true;
  template <class W>
  static W f(W x) {
    return -x;
  }
  static Tensor grad(const Tensor&, const Tensor&, const Tensor& dy) { return neg(dy); }
};

struct Abs : Number {
  static constexpr std::string_view name = "abs", doc = "y = |x|";
  static Fill fill() { return distinct(-1, 1); }
  template <class W>
  static W f(W x) {
    return x < 0 ? -x : x;
  }
  static Tensor grad(const Tensor& x, const Tensor&, const Tensor& dy) { return mul(dy, sign(x)); }
};

struct Sign : Number {
  static constexpr std::string_view name = "sign", doc = "y = -1, 0 or 1, the sign of x";
  static Fill fill() { return distinct(-1, 1); }
  template <class W>
  static W f(W x) {
    return static_cast<W>((x > 0) - (x < 0));
  }
  // Zero wherever it is defined.
  static Tensor grad(const Tensor&, const Tensor&, const Tensor&) { return {}; }
};

struct Exp : Floating {
  static constexpr std::string_view name = "exp", doc = "y = e^x";
  static constexpr double kFlops = 8;
  static double f(double x) { return std::exp(x); }
  static Tensor grad(const Tensor&, const Tensor& y, const Tensor& dy) { return mul(dy, y); }
};

struct Log : Floating {
  static constexpr std::string_view name = "log", doc = "y = ln x";
  static constexpr double kFlops = 8;
  static Fill fill() { return uniform(0.5, 2); }
  static double f(double x) { return std::log(x); }
  static Tensor grad(const Tensor& x, const Tensor&, const Tensor& dy) { return div(dy, x); }
};

struct Sqrt : Floating {
  static constexpr std::string_view name = "sqrt", doc = "y = x^(1/2)";
  static Fill fill() { return uniform(0.5, 2); }
  static double f(double x) { return std::sqrt(x); }
  static Tensor grad(const Tensor&, const Tensor& y, const Tensor& dy) { return div(scale(dy, 0.5), y); }
};

struct Rsqrt : Floating {
  static constexpr std::string_view name = "rsqrt", doc = "y = x^(-1/2)";
  static constexpr double kFlops = 2;
  static Fill fill() { return uniform(0.5, 2); }
  static double f(double x) { return 1 / std::sqrt(x); }
  static Tensor grad(const Tensor& x, const Tensor& y, const Tensor& dy) { return div(mul(scale(dy, -0.5), y), x); }
};

struct Reciprocal : Floating {
  static constexpr std::string_view name = "reciprocal", doc = "y = 1 / x";
  static Fill fill() { return uniform(0.5, 2); }
  static double f(double x) { return 1 / x; }
  static Tensor grad(const Tensor&, const Tensor& y, const Tensor& dy) { return neg(mul(dy, square(y))); }
};

struct Square : Number {
  static constexpr std::string_view name = "square", doc = "y = x^2";
  template <class W>
  static W f(W x) {
    return x * x;
  }
  static Tensor grad(const Tensor& x, const Tensor&, const Tensor& dy) { return mul(scale(dy, 2), x); }
};

struct Tanh : Floating {
  static constexpr std::string_view name = "tanh", doc = "y = tanh x";
  static constexpr double kFlops = 10;
  static double f(double x) { return std::tanh(x); }
  static Tensor grad(const Tensor&, const Tensor& y, const Tensor& dy) { return sub(dy, mul(dy, square(y))); }
};

struct Sigmoid : Floating {
  static constexpr std::string_view name = "sigmoid", doc = "y = 1 / (1 + e^-x)";
  static constexpr double kFlops = 10;
  static double f(double x) { return 1 / (1 + std::exp(-x)); }
  static Tensor grad(const Tensor&, const Tensor& y, const Tensor& dy) { return mul(dy, sub(y, square(y))); }
};

struct Erf : Floating {
  static constexpr std::string_view name = "erf", doc = "y = 2/sqrt(pi) integral of e^(-t^2) from 0 to x";
  static constexpr double kFlops = 12;
  static double f(double x) { return std::erf(x); }
  static Tensor grad(const Tensor& x, const Tensor&, const Tensor& dy) {
    return mul(scale(dy, 2 * std::numbers::inv_sqrtpi), exp(neg(square(x))));
  }
};

struct Sin : Floating {
  static constexpr std::string_view name = "sin", doc = "y = sin x";
  static constexpr double kFlops = 10;
  static double f(double x) { return std::sin(x); }
  static Tensor grad(const Tensor& x, const Tensor&, const Tensor& dy) { return mul(dy, cos(x)); }
};

struct Cos : Floating {
  static constexpr std::string_view name = "cos", doc = "y = cos x";
  static constexpr double kFlops = 10;
  static double f(double x) { return std::cos(x); }
  static Tensor grad(const Tensor& x, const Tensor&, const Tensor& dy) { return neg(mul(dy, sin(x))); }
};

struct Relu : Number {
  static constexpr std::string_view name = "relu", doc = "y = max(x, 0)";
  static Fill fill() { return distinct(-1, 1); }
  template <class W>
  static W f(W x) {
    return x > 0 || x != x ? x : 0;
  }
  static Tensor grad(const Tensor&, const Tensor& y, const Tensor& dy) { return relu_grad(y, dy); }
};

struct Silu : Floating {
  static constexpr std::string_view name = "silu", doc = "y = x / (1 + e^-x)";
  static constexpr double kFlops = 11;
  static double f(double x) { return x * Sigmoid::f(x); }
  static Tensor grad(const Tensor& x, const Tensor&, const Tensor& dy) { return silu_grad(x, dy); }
};

template <class F>
std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  require(is_floating(x.dtype) || (F::kIntegers && is_number(x.dtype)), "{}: the operand must be {} (x {})", F::name,
          F::kIntegers ? "a number" : "of a floating type", said(x));
  return {x};
}

template <class F>
std::vector<Tensor> grad(const GradArgs& args) {
  return {F::grad(args.in[0], args.out[0], args.dout[0])};
}

template <class F>
ShardingRule shard(const TypeArgs& args) {
  RuleOptions options;
  if (F::kLinear) options.linear = {{0}};
  return parse_rule("*->*", args.in, args.out, options);
}

template <class F>
Cost cost(const TypeArgs& args) {
  return {.flops = F::kFlops * static_cast<double>(args.out[0].elements()), .bytes = tensor_bytes(args)};
}

template <class F>
void kernel(const KernelArgs& args) {
  with_number(F::name, args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = args.in[0].as<T>();
    const auto y = args.out[0].as<T>();
    for (size_t i = 0; i < y.size(); ++i) y[i] = narrow<T>(static_cast<Wide<T>>(F::f(widen(x[i]))));
  });
}

template <class F>
std::vector<Example> examples() {
  const std::vector<Fill> fill = {F::fill()};
  std::vector<Example> out = {
      {{f32({4, 6})}, Attrs(), fill}, {{f32({})}, Attrs(), fill}, {{{DType::kBF16, {2, 3, 4}}}, Attrs(), fill}};
  if (F::kIntegers) out.push_back({{i32({6, 4})}, Attrs(), {integers(-9, 9)}});
  return out;
}

template <class F>
OpDef unary() {
  return {
      {F::name, &Attrs::parse<NoAttrs>},
      {
          .doc = F::doc,
          .inputs = "x",
          .infer = infer<F>,
          .grad = grad<F>,
          .shard = shard<F>,
          .cost = cost<F>,
          .kernel = kernel<F>,
          .traits = {.elementwise = true},
          .may_overwrite = {{0, 0}},
          .examples = examples<F>,
      },
  };
}

// f(a, dy), linear in dy.
struct ReluGrad : Floating {
  static constexpr std::string_view name = "relu_grad", doc = "dx = dy where y > 0, 0 elsewhere", inputs = "y, dy";
  static Fill fill() { return distinct(-1, 1); }
  static double f(double y, double dy) { return y > 0 ? dy : 0; }
  static std::vector<Tensor> grad(const GradArgs& g) {
    return {Tensor{}, g.wanted[1] ? relu_grad(g.in[0], g.dout[0]) : Tensor{}};
  }
};

struct SiluGrad : Floating {
  static constexpr std::string_view name = "silu_grad", doc = "dx = dy s (1 + x (1 - s)), s = 1 / (1 + e^-x)",
                                    inputs = "x, dy";
  static constexpr double kFlops = 15;
  static double f(double x, double dy) {
    const double s = Sigmoid::f(x);
    return dy * s * (1 + x * (1 - s));
  }
  // The second derivative is s (1 - s) (2 + x (1 - 2 s)).
  static std::vector<Tensor> grad(const GradArgs& g) {
    const Tensor& x = g.in[0];
    Tensor dx, ddy;
    if (g.wanted[0]) {
      const Tensor s = sigmoid(x);
      const Tensor bend = mul(sub(s, square(s)), add_scalar(mul(x, add_scalar(scale(s, -2), 1)), 2));
      dx = mul(mul(g.dout[0], g.in[1]), bend);
    }
    if (g.wanted[1]) ddy = silu_grad(x, g.dout[0]);
    return {dx, ddy};
  }
};

template <class F>
std::vector<TensorType> infer_pair(const InferArgs& args) {
  require(args.in[0] == args.in[1] && is_floating(args.in[0].dtype),
          "{}: operands must be of one floating type and shape ({}, {})", F::name, said(args.in[0]), said(args.in[1]));
  return {args.in[1]};
}

ShardingRule shard_pair(const TypeArgs& args) {
  return parse_rule("*,*->*", args.in, args.out, {.linear = {{1}}});
}

template <class F>
void kernel_pair(const KernelArgs& args) {
  with_floating(F::name, args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = args.in[0].as<T>();
    const auto dy = args.in[1].as<T>();
    const auto dx = args.out[0].as<T>();
    for (size_t i = 0; i < dx.size(); ++i) dx[i] = store<T>(F::f(load(a[i]), load(dy[i])));
  });
}

template <class F>
std::vector<Example> examples_pair() {
  const TensorType half{DType::kBF16, {2, 3, 4}};
  return {{{f32({4, 6}), f32({4, 6})}, Attrs(), {F::fill()}}, {{half, half}, Attrs(), {F::fill()}}};
}

template <class F>
OpDef pair() {
  return {
      {F::name, &Attrs::parse<NoAttrs>},
      {
          .doc = F::doc,
          .inputs = F::inputs,
          .infer = infer_pair<F>,
          .grad = F::grad,
          .shard = shard_pair,
          .cost = cost<F>,
          .kernel = kernel_pair<F>,
          .traits = {.elementwise = true},
          .may_overwrite = {{0, 0}, {0, 1}},
          .examples = examples_pair<F>,
      },
  };
}

std::vector<TensorType> infer_not(const InferArgs& args) {
  require(args.in[0].dtype == DType::kBool, "logical_not: the operand must be bool (x {})", said(args.in[0]));
  return {args.in[0]};
}

void kernel_not(const KernelArgs& args) {
  const auto x = args.in[0].as<bool>();
  const auto y = args.out[0].as<bool>();
  for (size_t i = 0; i < y.size(); ++i) y[i] = !x[i];
}

std::vector<Example> examples_not() {
  return {{{{DType::kBool, {4, 6}}}, Attrs(), {integers(0, 2)}}};
}

}  // namespace unary_ops

namespace ops {
extern const OpDef neg = unary_ops::unary<unary_ops::Neg>();
extern const OpDef abs = unary_ops::unary<unary_ops::Abs>();
extern const OpDef sign = unary_ops::unary<unary_ops::Sign>();
extern const OpDef exp = unary_ops::unary<unary_ops::Exp>();
extern const OpDef log = unary_ops::unary<unary_ops::Log>();
extern const OpDef sqrt = unary_ops::unary<unary_ops::Sqrt>();
extern const OpDef rsqrt = unary_ops::unary<unary_ops::Rsqrt>();
extern const OpDef reciprocal = unary_ops::unary<unary_ops::Reciprocal>();
extern const OpDef square = unary_ops::unary<unary_ops::Square>();
extern const OpDef tanh = unary_ops::unary<unary_ops::Tanh>();
extern const OpDef sigmoid = unary_ops::unary<unary_ops::Sigmoid>();
extern const OpDef erf = unary_ops::unary<unary_ops::Erf>();
extern const OpDef sin = unary_ops::unary<unary_ops::Sin>();
extern const OpDef cos = unary_ops::unary<unary_ops::Cos>();
extern const OpDef relu = unary_ops::unary<unary_ops::Relu>();
extern const OpDef silu = unary_ops::unary<unary_ops::Silu>();
extern const OpDef relu_grad = unary_ops::pair<unary_ops::ReluGrad>();
extern const OpDef silu_grad = unary_ops::pair<unary_ops::SiluGrad>();
extern const OpDef logical_not{
    {"logical_not", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = not x",
        .inputs = "x",
        .infer = unary_ops::infer_not,
        .grad = Facet<GradFn>::none("bool result"),
        .shard = unary_ops::shard<unary_ops::Sign>,
        .cost = unary_ops::cost<unary_ops::Sign>,
        .kernel = unary_ops::kernel_not,
        .traits = {.elementwise = true},
        .may_overwrite = {{0, 0}},
        .examples = unary_ops::examples_not,
    },
};
}  // namespace ops

Tensor neg(const Tensor& x) {
  return apply1(ops::neg, {x});
}
Tensor abs(const Tensor& x) {
  return apply1(ops::abs, {x});
}
Tensor sign(const Tensor& x) {
  return apply1(ops::sign, {x});
}
Tensor exp(const Tensor& x) {
  return apply1(ops::exp, {x});
}
Tensor log(const Tensor& x) {
  return apply1(ops::log, {x});
}
Tensor sqrt(const Tensor& x) {
  return apply1(ops::sqrt, {x});
}
Tensor rsqrt(const Tensor& x) {
  return apply1(ops::rsqrt, {x});
}
Tensor reciprocal(const Tensor& x) {
  return apply1(ops::reciprocal, {x});
}
Tensor square(const Tensor& x) {
  return apply1(ops::square, {x});
}
Tensor tanh(const Tensor& x) {
  return apply1(ops::tanh, {x});
}
Tensor sigmoid(const Tensor& x) {
  return apply1(ops::sigmoid, {x});
}
Tensor erf(const Tensor& x) {
  return apply1(ops::erf, {x});
}
Tensor sin(const Tensor& x) {
  return apply1(ops::sin, {x});
}
Tensor cos(const Tensor& x) {
  return apply1(ops::cos, {x});
}
Tensor relu(const Tensor& x) {
  return apply1(ops::relu, {x});
}
Tensor silu(const Tensor& x) {
  return apply1(ops::silu, {x});
}
Tensor relu_grad(const Tensor& y, const Tensor& dy) {
  return apply1(ops::relu_grad, {y, dy});
}
Tensor silu_grad(const Tensor& x, const Tensor& dy) {
  return apply1(ops::silu_grad, {x, dy});
}
Tensor logical_not(const Tensor& x) {
  return apply1(ops::logical_not, {x});
}

Tensor operator-(const Tensor& x) {
  return neg(x);
}

}  // namespace trireme
