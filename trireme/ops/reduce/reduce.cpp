// reduce_sum, reduce_max, reduce_min: y = f over the given dimensions of x, which go or stay with
// size 1; square_sum: y = sum of x^2; mean and sum_to are made of them. Sums are accumulated in
// double, and those of bf16 are given in f32.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/elementwise/elementwise.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace ops {
extern const OpDef square_sum_rows;
}  // namespace ops

namespace reduce_op {

bool reduces(const ReduceAttrs& attrs, int dim) {
  return std::find(attrs.dims.begin(), attrs.dims.end(), dim) != attrs.dims.end();
}

// The shape with size 1 in the reduced dimensions.
Shape kept(const Shape& x, const ReduceAttrs& attrs) {
  Shape out = x;
  for (const int64_t dim : attrs.dims) out[static_cast<int>(dim)] = 1;
  return out;
}

template <class F>
std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ReduceAttrs>();
  const TensorType& x = args.in[0];
  require(is_number(x.dtype), "{}: the operand must be a number (x {})", F::name, said(x));
  for (size_t i = 0; i < attrs.dims.size(); ++i) {
    const int64_t dim = attrs.dims[i];
    require(dim >= 0 && dim < x.shape.rank(), "{}: no dimension {} in x {}; dimensions are 0 to {}", F::name, dim,
            said(x), x.shape.rank() - 1);
    require(std::count(attrs.dims.begin(), attrs.dims.end(), dim) == 1, "{}: dimension {} is given twice", F::name,
            dim);
  }
  TensorType y{F::result(x.dtype), {}};
  for (int dim = 0; dim < x.shape.rank(); ++dim) {
    if (!reduces(attrs, dim)) {
      y.shape.push_back(x.shape[dim]);
    } else {
      require(F::has_empty || x.shape[dim] > 0, "{}: dimension {} of x {} is empty and has no {}", F::name, dim,
              said(x), F::name);
      if (attrs.keep_dims) y.shape.push_back(1);
    }
  }
  return {y};
}

struct Sum {
  static DType result(DType x) { return is_floating(x) ? statistic_type(x) : x; }
  static constexpr std::string_view name = "reduce_sum", doc = "y = sum of x over dims";
  static constexpr Reduction reduction = Reduction::kSum;
  static constexpr bool has_empty = true;
  template <class W>
  static W start() {
    return 0;
  }
  template <class W>
  static W f(W a, W b) {
    return a + b;
  }
  static Fill fill() { return uniform(-1, 1); }
};

struct Max {
  static DType result(DType x) { return x; }
  static constexpr std::string_view name = "reduce_max", doc = "y = largest of x over dims";
  static constexpr Reduction reduction = Reduction::kMax;
  static constexpr bool has_empty = false;
  template <class W>
  static W start() {
    return std::numeric_limits<W>::has_infinity ? -std::numeric_limits<W>::infinity()
                                                : std::numeric_limits<W>::lowest();
  }
  template <class W>
  static W f(W a, W b) {
    return b > a || b != b ? b : a;
  }
  static Fill fill() { return distinct(-1, 1); }
};

struct Min {
  static DType result(DType x) { return x; }
  static constexpr std::string_view name = "reduce_min", doc = "y = smallest of x over dims";
  static constexpr Reduction reduction = Reduction::kMin;
  static constexpr bool has_empty = false;
  template <class W>
  static W start() {
    return std::numeric_limits<W>::has_infinity ? std::numeric_limits<W>::infinity() : std::numeric_limits<W>::max();
  }
  template <class W>
  static W f(W a, W b) {
    return b < a || b != b ? b : a;
  }
  static Fill fill() { return distinct(-1, 1); }
};

std::vector<Tensor> grad_sum(const GradArgs& args) {
  const Tensor& x = args.in[0];
  const Shape one = kept(x.shape(), args.attrs.as<ReduceAttrs>());
  return {broadcast_to(reshape(cast(args.dout[0], x.dtype()), one), x.shape())};
}

// Elements that share the extreme value share the gradient.
std::vector<Tensor> grad_extreme(const GradArgs& args) {
  const Tensor& x = args.in[0];
  const auto& attrs = args.attrs.as<ReduceAttrs>();
  const Shape one = kept(x.shape(), attrs);
  const Tensor hit = cast(equal(x, reshape(args.out[0], one)), x.dtype());
  const Tensor share = div(reshape(args.dout[0], one), reduce_sum(hit, attrs.dims, true));
  return {mul(hit, share)};
}

template <class F>
ShardingRule shard(const TypeArgs& args) {
  const auto& attrs = args.attrs.as<ReduceAttrs>();
  RuleOptions options;
  if (F::reduction == Reduction::kSum) options.linear = {{0}};
  std::string in, out;
  for (int dim = 0; dim < args.in[0].shape.rank(); ++dim) {
    const char letter = static_cast<char>('a' + dim);
    in += letter;
    if (!reduces(attrs, dim)) {
      out += letter;
      continue;
    }
    options.reductions[letter] = F::reduction;
    if (attrs.keep_dims) out += '.';
  }
  return parse_rule(in + "->" + out, args.in, args.out, options);
}

Cost cost(const TypeArgs& args) {
  return {.flops = static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

// The result, seen with size 1 in the reduced dimensions, is walked as an operand that is broadcast
// to x.
template <class F>
void kernel(const KernelArgs& args) {
  const Shape& shape = args.in[0].type.shape;
  const Shape one = kept(shape, args.attrs.as<ReduceAttrs>());
  with_number(F::name, args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    const View& y = args.out[0];
    std::vector<W> result(static_cast<size_t>(y.elements()), F::template start<W>());
    BroadcastWalk<1> at(shape, {&one});
    for (const T& x : args.in[0].as<T>()) {
      result[at[0]] = F::f(result[at[0]], widen(x));
      at.next();
    }
    with_number(F::name, y.type.dtype, [&](auto of_result) {
      using Y = decltype(of_result);
      for (size_t i = 0; i < result.size(); ++i) y.as<Y>()[i] = narrow<Y>(static_cast<Wide<Y>>(result[i]));
    });
  });
}

template <class F>
std::vector<Example> examples() {
  const std::vector<Fill> fill = {F::fill()};
  return {{{f32({4, 6})}, Attrs::of(ReduceAttrs{{0}, false}), fill},
          {{f32({2, 3, 6})}, Attrs::of(ReduceAttrs{{0, 2}, true}), fill},
          {{f32({2, 6})}, Attrs::of(ReduceAttrs{{0, 1}, false}), fill},
          {{{DType::kBF16, {4, 6}}}, Attrs::of(ReduceAttrs{{1}, false}), fill},
          {{i64({6, 4})}, Attrs::of(ReduceAttrs{{0}, false}), {integers(-9, 9)}}};
}

template <class F>
OpDef reduction(GradFn* grad) {
  return {
      {F::name, &Attrs::parse<ReduceAttrs>},
      {
          .doc = F::doc,
          .inputs = "x",
          .infer = infer<F>,
          .grad = grad,
          .shard = shard<F>,
          .cost = cost,
          .kernel = kernel<F>,
          .examples = examples<F>,
      },
  };
}

std::vector<TensorType> infer_square_sum(const InferArgs& args) {
  require(is_floating(args.in[0].dtype), "square_sum: the operand must be of a floating type (x {})", said(args.in[0]));
  return {{statistic_type(args.in[0].dtype), {}}};
}

std::vector<Tensor> grad_square_sum(const GradArgs& args) {
  const Tensor& x = args.in[0];
  return {mul(scale(cast(args.dout[0], x.dtype()), 2), x)};
}

ShardingRule shard_square_sum(const TypeArgs& args) {
  return parse_rule("*->", args.in, args.out, {.zeros_add_nothing = "*"});
}

Cost cost_square_sum(const TypeArgs& args) {
  return {.flops = 2.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

void kernel_square_sum(const KernelArgs& args) {
  double sum = 0;
  with_floating("square_sum", args.in[0].type.dtype, [&](auto zero) {
    for (const auto& x : args.in[0].as<decltype(zero)>()) sum += load(x) * load(x);
  });
  with_floating("square_sum", args.out[0].type.dtype,
                [&](auto zero) { args.out[0].as<decltype(zero)>()[0] = store<decltype(zero)>(sum); });
}

Attrs attrs_of_list(const TypeArgs& args) {
  return Attrs::of(SquareSumRowsAttrs{args.in[0].shape[0]});
}

std::vector<Example> examples_square_sum() {
  return {{{f32({4, 6})}}, {{f32({})}}, {{{DType::kBF16, {2, 3, 4}}}}};
}

// Counts from the end where negative, sorts, and takes none given for all.
std::vector<int64_t> settle_dims(std::string_view op, const Tensor& x, std::vector<int64_t> dims) {
  if (dims.empty()) {
    dims.resize(static_cast<size_t>(x.rank()));
    std::iota(dims.begin(), dims.end(), 0);
    return dims;
  }
  for (int64_t& dim : dims) {
    require(dim >= -x.rank() && dim < x.rank(), "{}: no dimension {} in x {}; dimensions are {} to {}", op, dim,
            said(x.type()), -x.rank(), x.rank() - 1);
    if (dim < 0) dim += x.rank();
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

Tensor reduce(const OpDef& op, const Tensor& x, std::vector<int64_t> dims, bool keep_dims) {
  return apply1(op, {x}, Attrs::of(ReduceAttrs{settle_dims(op.name, x, std::move(dims)), keep_dims}));
}

}  // namespace reduce_op

namespace ops {
extern const OpDef reduce_sum = reduce_op::reduction<reduce_op::Sum>(reduce_op::grad_sum);
extern const OpDef reduce_max = reduce_op::reduction<reduce_op::Max>(reduce_op::grad_extreme);
extern const OpDef reduce_min = reduce_op::reduction<reduce_op::Min>(reduce_op::grad_extreme);
extern const OpDef square_sum{
    {"square_sum", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = sum of x^2",
        .inputs = "x",
        .infer = reduce_op::infer_square_sum,
        .grad = reduce_op::grad_square_sum,
        .shard = reduce_op::shard_square_sum,
        .cost = reduce_op::cost_square_sum,
        .kernel = reduce_op::kernel_square_sum,
        .examples = reduce_op::examples_square_sum,
        .of_rows = OfRowList{&square_sum_rows, reduce_op::attrs_of_list},
    },
};
}  // namespace ops

Tensor reduce_sum(const Tensor& x, std::vector<int64_t> dims, bool keep_dims) {
  return cast(reduce_op::reduce(ops::reduce_sum, x, std::move(dims), keep_dims), x.dtype());
}
Tensor reduce_max(const Tensor& x, std::vector<int64_t> dims, bool keep_dims) {
  return reduce_op::reduce(ops::reduce_max, x, std::move(dims), keep_dims);
}
Tensor reduce_min(const Tensor& x, std::vector<int64_t> dims, bool keep_dims) {
  return reduce_op::reduce(ops::reduce_min, x, std::move(dims), keep_dims);
}
Tensor square_sum(const Tensor& x) {
  return apply1(ops::square_sum, {x});
}

Tensor mean(const Tensor& x, std::vector<int64_t> dims, bool keep_dims) {
  require(is_floating(x.dtype()), "mean: the operand must be of a floating type (x {}); cast it first", said(x.type()));
  dims = reduce_op::settle_dims("mean", x, std::move(dims));
  int64_t count = 1;
  for (const int64_t dim : dims) count *= x.shape()[static_cast<int>(dim)];
  require(count > 0, "mean: no elements to average in x {}", said(x.type()));
  return scale(reduce_sum(x, dims, keep_dims), 1.0 / static_cast<double>(count));
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int extra = x.rank() - shape.rank();
  require(extra >= 0, "sum_to: x {} has fewer dimensions than {}", said(x.type()), said(shape));
  std::vector<int64_t> dims;
  for (int dim = 0; dim < x.rank(); ++dim) {
    const int64_t target = dim < extra ? 1 : shape[dim - extra];
    if (x.shape()[dim] == target && dim >= extra) continue;
    require(target == 1, "sum_to: size {} of dimension {} of x {} cannot be summed to {}", x.shape()[dim], dim,
            said(x.type()), said(shape));
    dims.push_back(dim);
  }
  return reshape(reduce_op::reduce(ops::reduce_sum, x, dims, true), shape);
}

}  // namespace trireme
