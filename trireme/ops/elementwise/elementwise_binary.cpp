// add, sub, mul, div, maximum, minimum, pow, equal, less, greater, logical_and: y = f(a, b) element
// by element, the operands broadcast to one shape; and select(c, a, b), the same with three
// operands.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "trireme/base/said.h"
#include "trireme/ops/elementwise/elementwise.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/with_element.h"

namespace trireme {
namespace binary_ops {

// A row of the table below has: name, doc, f, grad, and where it differs from these defaults:
struct Arithmetic {
  static constexpr bool kIntegers = true;  // whether it takes i32 and i64
  static std::vector<std::vector<int>> linear() { return {}; }
  static Fill fill(int) { return uniform(-1, 1); }
  static std::vector<Example> more() { return {}; }
};

using Sets = std::vector<std::vector<int>>;
using Tensors = std::vector<Tensor>;

// The gradients of both operands, summed over the dimensions in which the operand was repeated.
Tensors settle(const GradArgs& args, Tensor da, Tensor db) {
  return {da ? sum_to(da, args.in[0].shape()) : da, db ? sum_to(db, args.in[1].shape()) : db};
}

struct Add : Arithmetic {
  static constexpr std::string_view name = "add", doc = "y = a + b, broadcast";
  static Sets linear() { return {{0, 1}}; }
  template <class W>
  static W f(W a, W b) {
    return a + b;
  }
  static Tensors grad(const GradArgs& g) { return settle(g, g.dout[0], g.dout[0]); }
};

struct Sub : Arithmetic {
  static constexpr std::string_view name = "sub", doc = "y = a - b, broadcast";
  static Sets linear() { return {{0, 1}}; }
  template <class W>
  static W f(W a, W b) {
    return a - b;
  }
  static Tensors grad(const GradArgs& g) { return settle(g, g.dout[0], g.wanted[1] ? neg(g.dout[0]) : Tensor{}); }
};

struct Mul : Arithmetic {
  static constexpr std::string_view name = "mul", doc = "y = a * b, broadcast";
  static Sets linear() { return {{0}, {1}}; }
  template <class W>
  static W f(W a, W b) {
    return a * b;
  }
  static Tensors grad(const GradArgs& g) {
    return settle(g, g.wanted[0] ? mul(g.dout[0], g.in[1]) : Tensor{},
                  g.wanted[1] ? mul(g.dout[0], g.in[0]) : Tensor{});
  }
};

struct Div : Arithmetic {
  static constexpr std::string_view name = "div", doc = "y = a / b, broadcast";
  static constexpr bool kIntegers = false;
  static Sets linear() { return {{0}}; }
  static Fill fill(int operand) { return operand == 0 ? uniform(-1, 1) : uniform(0.5, 2); }
  static double f(double a, double b) { return a / b; }
  static Tensors grad(const GradArgs& g) {
    const Tensor da = div(g.dout[0], g.in[1]);
    return settle(g, da, g.wanted[1] ? neg(mul(da, g.out[0])) : Tensor{});
  }
};

// Of equal operands the first gets the gradient.
struct Maximum : Arithmetic {
  static constexpr std::string_view name = "maximum", doc = "y = max(a, b), broadcast";
  static Fill fill(int operand) { return operand == 0 ? distinct(-1, 1) : distinct(-0.99, 1.01); }
  template <class W>
  static W f(W a, W b) {
    return b > a || b != b ? b : a;
  }
  static Tensors grad(const GradArgs& g) {
    const Tensor second = greater(g.in[1], g.in[0]);
    const Tensor zero = full(g.in[0].graph(), {g.in[0].dtype(), {}}, 0);
    return settle(g, select(second, zero, g.dout[0]), select(second, g.dout[0], zero));
  }
};

struct Minimum : Arithmetic {
  static constexpr std::string_view name = "minimum", doc = "y = min(a, b), broadcast";
  static Fill fill(int operand) { return Maximum::fill(operand); }
  template <class W>
  static W f(W a, W b) {
    return b < a || b != b ? b : a;
  }
  static Tensors grad(const GradArgs& g) {
    const Tensor second = less(g.in[1], g.in[0]);
    const Tensor zero = full(g.in[0].graph(), {g.in[0].dtype(), {}}, 0);
    return settle(g, select(second, zero, g.dout[0]), select(second, g.dout[0], zero));
  }
};

// At a = 0 the power does not change with b >= 0, and at b = 0 it does not with a.
struct Pow : Arithmetic {
  static constexpr std::string_view name = "pow", doc = "y = a ^ b, broadcast";
  static constexpr bool kIntegers = false;
  static Fill fill(int operand) { return operand == 0 ? uniform(0.5, 2) : uniform(-2, 2); }
  static std::vector<Example> more() {
    return {{{f32({4, 6}), f32({6})}, Attrs(), {integers(0, 3), integers(1, 4)}},
            {{f32({4, 6}), f32({4, 1})}, Attrs(), {integers(1, 3), integers(-1, 2)}}};
  }
  static double f(double a, double b) { return std::pow(a, b); }
  static Tensors grad(const GradArgs& g) {
    const Tensor& a = g.in[0];
    const Tensor& b = g.in[1];
    Tensor da, db;
    const Tensor zero = full(a.graph(), {a.dtype(), {}}, 0);
    if (g.wanted[0]) da = select(equal(b, zero), zero, g.dout[0] * b * pow(a, add_scalar(b, -1)));
    if (g.wanted[1]) {
      const Tensor at_least_0 = equal(b, maximum(b, zero));
      db = g.dout[0] * select(logical_and(equal(a, zero), at_least_0), zero, g.out[0] * log(a));
    }
    return settle(g, da, db);
  }
};

struct Equal {
  static constexpr std::string_view name = "equal", doc = "y = (a == b), broadcast, as bool";
  template <class W>
  static bool f(W a, W b) {
    return a == b;
  }
};

struct Less {
  static constexpr std::string_view name = "less", doc = "y = (a < b), broadcast, as bool";
  template <class W>
  static bool f(W a, W b) {
    return a < b;
  }
};

struct Greater {
  static constexpr std::string_view name = "greater", doc = "y = (a > b), broadcast, as bool";
  template <class W>
  static bool f(W a, W b) {
    return a > b;
  }
};

TensorType both(std::string_view op, const InferArgs& args) {
  require(args.in[0].dtype == args.in[1].dtype, "{}: operands must be of one type (a {}, b {}); cast one of them", op,
          said(args.in[0]), said(args.in[1]));
  return {args.in[0].dtype, broadcast_shape(op, args.in)};
}

template <class F>
std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType y = both(F::name, args);
  require(is_floating(y.dtype) || (F::kIntegers && is_number(y.dtype)), "{}: operands must be {} (a {}, b {})", F::name,
          F::kIntegers ? "numbers" : "of a floating type", said(args.in[0]), said(args.in[1]));
  return {y};
}

template <class F>
std::vector<TensorType> infer_compare(const InferArgs& args) {
  return {{DType::kBool, both(F::name, args).shape}};
}

template <class F>
ShardingRule shard(const TypeArgs& args) {
  return broadcast_rule(args, F::linear());
}

ShardingRule shard_compare(const TypeArgs& args) {
  return broadcast_rule(args, {});
}

Cost cost(const TypeArgs& args) {
  return {.flops = static_cast<double>(args.out[0].elements()), .bytes = tensor_bytes(args)};
}

// Writes f(a, b) as type Y.
template <class T, class Y, class Fn>
void map(const KernelArgs& args, Fn&& f) {
  const auto a = args.in[0].as<T>();
  const auto b = args.in[1].as<T>();
  BroadcastWalk<2> at(args.out[0].type.shape, {&args.in[0].type.shape, &args.in[1].type.shape});
  for (Y& y : args.out[0].as<Y>()) {
    y = f(a[at[0]], b[at[1]]);
    at.next();
  }
}

template <class F>
void kernel(const KernelArgs& args) {
  with_number(F::name, args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    map<T, T>(args, [](T a, T b) { return narrow<T>(static_cast<Wide<T>>(F::f(widen(a), widen(b)))); });
  });
}

template <class F>
void kernel_compare(const KernelArgs& args) {
  with_element(F::name, args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    map<T, bool>(args, [](T a, T b) { return F::f(widen(a), widen(b)); });
  });
}

// One shape, a bias, a column against a row, a scalar, and other types.
template <class F>
std::vector<Example> examples() {
  const std::vector<Fill> fill = {F::fill(0), F::fill(1)};
  const Attrs none;
  std::vector<Example> out = {{{f32({4, 6}), f32({4, 6})}, none, fill},
                              {{f32({2, 3, 6}), f32({6})}, none, fill},
                              {{f32({4, 1}), f32({2, 1, 6})}, none, fill},
                              {{f32({}), f32({4, 3})}, none, fill},
                              {{{DType::kBF16, {4, 6}}, {DType::kBF16, {4, 6}}}, none, fill}};
  if (F::kIntegers) out.push_back({{i64({4, 6}), i64({6})}, none, {integers(-9, 9), integers(-9, 9)}});
  std::ranges::copy(F::more(), std::back_inserter(out));
  return out;
}

template <class F>
std::vector<Example> examples_compare() {
  const std::vector<Fill> few = {integers(-2, 3), integers(-2, 3)};
  return {{{f32({4, 6}), f32({4, 6})}, Attrs(), few}, {{i32({4, 1}), i32({2, 1, 6})}, Attrs(), few}};
}

template <class F>
OpDef binary() {
  return {
      {F::name, &Attrs::parse<NoAttrs>},
      {
          .doc = F::doc,
          .inputs = "a, b",
          .infer = infer<F>,
          .grad = F::grad,
          .shard = shard<F>,
          .cost = cost,
          .kernel = kernel<F>,
          .traits = {.elementwise = true},
          .may_overwrite = {{0, 0}, {0, 1}},
          .examples = examples<F>,
      },
  };
}

template <class F>
OpDef compare() {
  return {
      {F::name, &Attrs::parse<NoAttrs>},
      {
          .doc = F::doc,
          .inputs = "a, b",
          .infer = infer_compare<F>,
          .grad = Facet<GradFn>::none("bool result"),
          .shard = shard_compare,
          .cost = cost,
          .kernel = kernel_compare<F>,
          .traits = {.elementwise = true},
          .examples = examples_compare<F>,
      },
  };
}

std::vector<TensorType> infer_and(const InferArgs& args) {
  require(args.in[0].dtype == DType::kBool && args.in[1].dtype == DType::kBool,
          "logical_and: operands must be bool (a {}, b {})", said(args.in[0]), said(args.in[1]));
  return {{DType::kBool, broadcast_shape("logical_and", args.in)}};
}

void kernel_and(const KernelArgs& args) {
  map<bool, bool>(args, [](bool a, bool b) { return a && b; });
}

std::vector<Example> examples_and() {
  const TensorType matrix{DType::kBool, {4, 6}};
  const std::vector<Fill> bits = {integers(0, 2), integers(0, 2)};
  return {{{matrix, matrix}, Attrs(), bits}, {{matrix, {DType::kBool, {6}}}, Attrs(), bits}};
}

std::vector<TensorType> infer_select(const InferArgs& args) {
  require(args.in[0].dtype == DType::kBool, "select: the condition must be bool, it is {}; compare it with a value",
          said(args.in[0]));
  require(args.in[1].dtype == args.in[2].dtype, "select: a and b must be of one type (a {}, b {}); cast one of them",
          said(args.in[1]), said(args.in[2]));
  return {{args.in[1].dtype, broadcast_shape("select", args.in)}};
}

std::vector<Tensor> grad_select(const GradArgs& args) {
  const Tensor& condition = args.in[0];
  const Tensor& dy = args.dout[0];
  const Tensor zero = full(dy.graph(), {dy.dtype(), {}}, 0);
  Tensor da, db;
  if (args.wanted[1]) da = sum_to(select(condition, dy, zero), args.in[1].shape());
  if (args.wanted[2]) db = sum_to(select(condition, zero, dy), args.in[2].shape());
  return {Tensor{}, da, db};
}

ShardingRule shard_select(const TypeArgs& args) {
  return broadcast_rule(args, {{1, 2}});
}

void kernel_select(const KernelArgs& args) {
  with_element("select", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto condition = args.in[0].as<bool>();
    const auto a = args.in[1].as<T>();
    const auto b = args.in[2].as<T>();
    BroadcastWalk<3> at(args.out[0].type.shape,
                        {&args.in[0].type.shape, &args.in[1].type.shape, &args.in[2].type.shape});
    for (T& y : args.out[0].as<T>()) {
      y = condition[at[0]] ? a[at[1]] : b[at[2]];
      at.next();
    }
  });
}

std::vector<Example> examples_select() {
  const std::vector<Fill> fill = {integers(0, 2), uniform(-1, 1), uniform(-1, 1)};
  return {
      {{{DType::kBool, {4, 6}}, f32({4, 6}), f32({4, 6})}, Attrs(), fill},
      {{{DType::kBool, {6}}, f32({2, 4, 6}), f32({})}, Attrs(), fill},
      {{{DType::kBool, {4, 1}}, i64({6}), i64({4, 6})}, Attrs(), {integers(0, 2), integers(-5, 5), integers(-5, 5)}}};
}

}  // namespace binary_ops

namespace ops {
extern const OpDef add = binary_ops::binary<binary_ops::Add>();
extern const OpDef sub = binary_ops::binary<binary_ops::Sub>();
extern const OpDef mul = binary_ops::binary<binary_ops::Mul>();
extern const OpDef div = binary_ops::binary<binary_ops::Div>();
extern const OpDef maximum = binary_ops::binary<binary_ops::Maximum>();
extern const OpDef minimum = binary_ops::binary<binary_ops::Minimum>();
extern const OpDef pow = binary_ops::binary<binary_ops::Pow>();
extern const OpDef equal = binary_ops::compare<binary_ops::Equal>();
extern const OpDef less = binary_ops::compare<binary_ops::Less>();
extern const OpDef greater = binary_ops::compare<binary_ops::Greater>();
extern const OpDef logical_and{
    {"logical_and", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = a and b, broadcast",
        .inputs = "a, b",
        .infer = binary_ops::infer_and,
        .grad = Facet<GradFn>::none("bool result"),
        .shard = binary_ops::shard_compare,
        .cost = binary_ops::cost,
        .kernel = binary_ops::kernel_and,
        .traits = {.elementwise = true},
        .may_overwrite = {{0, 0}, {0, 1}},
        .examples = binary_ops::examples_and,
    },
};
extern const OpDef select{
    {"select", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = a where the condition holds, b elsewhere, broadcast",
        .inputs = "condition, a, b",
        .infer = binary_ops::infer_select,
        .grad = binary_ops::grad_select,
        .shard = binary_ops::shard_select,
        .cost = binary_ops::cost,
        .kernel = binary_ops::kernel_select,
        .traits = {.elementwise = true},
        .may_overwrite = {{0, 1}, {0, 2}},
        .examples = binary_ops::examples_select,
    },
};
}  // namespace ops

Tensor add(const Tensor& a, const Tensor& b) {
  return apply1(ops::add, {a, b});
}
Tensor sub(const Tensor& a, const Tensor& b) {
  return apply1(ops::sub, {a, b});
}
Tensor mul(const Tensor& a, const Tensor& b) {
  return apply1(ops::mul, {a, b});
}
Tensor div(const Tensor& a, const Tensor& b) {
  return apply1(ops::div, {a, b});
}
Tensor maximum(const Tensor& a, const Tensor& b) {
  return apply1(ops::maximum, {a, b});
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return apply1(ops::minimum, {a, b});
}
Tensor pow(const Tensor& a, const Tensor& b) {
  return apply1(ops::pow, {a, b});
}
Tensor equal(const Tensor& a, const Tensor& b) {
  return apply1(ops::equal, {a, b});
}
Tensor less(const Tensor& a, const Tensor& b) {
  return apply1(ops::less, {a, b});
}
Tensor greater(const Tensor& a, const Tensor& b) {
  return apply1(ops::greater, {a, b});
}
Tensor logical_and(const Tensor& a, const Tensor& b) {
  return apply1(ops::logical_and, {a, b});
}
Tensor select(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return apply1(ops::select, {condition, a, b});
}

Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}

}  // namespace trireme
