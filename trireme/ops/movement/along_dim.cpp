// cumsum: y[..i..] = sum of x[..j..] over j <= i along one dimension (j >= i when reversed),
// accumulated in double; argmax: the first index of the largest element along one dimension, as
// i32.
#include "trireme/base/said.h"
#include "trireme/ops/movement/movement.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace along_dim_op {

// A tensor as lines along a dimension: element i of line n is at (n / inner * size + i) * inner + n
// % inner.
struct Lines {
  Lines(const Shape& shape, int dim) : size(shape[dim]) {
    for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
    for (int d = 0; d < shape.rank(); ++d) count *= d == dim ? 1 : shape[d];
  }
  size_t at(int64_t line, int64_t i) const {
    return static_cast<size_t>((line / inner * size + i) * inner + line % inner);
  }
  int64_t size;
  int64_t inner = 1;
  int64_t count = 1;
};

void check_operand(std::string_view op, const TensorType& x, int64_t dim) {
  require(is_number(x.dtype), "{}: the operand must be a number (x {})", op, said(x));
  require(dim >= 0 && dim < x.shape.rank(), "{}: no dimension {} in x {}; dimensions are 0 to {}", op, dim, said(x),
          x.shape.rank() - 1);
}

std::vector<TensorType> infer_cumsum(const InferArgs& args) {
  check_operand("cumsum", args.in[0], args.attrs.as<CumsumAttrs>().dim);
  return {args.in[0]};
}

std::vector<Tensor> grad_cumsum(const GradArgs& args) {
  const auto& attrs = args.attrs.as<CumsumAttrs>();
  return {cumsum(args.dout[0], static_cast<int>(attrs.dim), !attrs.reverse)};
}

ShardingRule shard_cumsum(const TypeArgs& args) {
  std::string text;
  for (int dim = 0; dim < args.in[0].shape.rank(); ++dim) {
    text += static_cast<char>('a' + dim);
    if (dim == args.attrs.as<CumsumAttrs>().dim) text += '!';
  }
  return parse_rule(text + "->" + text, args.in, args.out, {.linear = {{0}}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

void kernel_cumsum(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<CumsumAttrs>();
  const Lines lines(args.in[0].type.shape, static_cast<int>(attrs.dim));
  with_number("cumsum", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = args.in[0].as<T>();
    const auto y = args.out[0].as<T>();
    for (int64_t line = 0; line < lines.count; ++line) {
      Wide<T> sum = 0;
      for (int64_t i = 0; i < lines.size; ++i) {
        const size_t at = lines.at(line, attrs.reverse ? lines.size - 1 - i : i);
        sum += widen(x[at]);
        y[at] = narrow<T>(sum);
      }
    }
  });
}

std::vector<Example> examples_cumsum() {
  return {{{f32({4, 6})}, Attrs::of(CumsumAttrs{1})},
          {{f32({2, 3, 6})}, Attrs::of(CumsumAttrs{1, true})},
          {{i64({6, 4})}, Attrs::of(CumsumAttrs{0}), {integers(-9, 9)}}};
}

std::vector<TensorType> infer_argmax(const InferArgs& args) {
  const TensorType& x = args.in[0];
  const auto dim = static_cast<int>(args.attrs.as<ArgmaxAttrs>().dim);
  check_operand("argmax", x, dim);
  require(x.shape[dim] > 0, "argmax: dimension {} of x {} is empty and has no largest element", dim, said(x));
  TensorType y{DType::kI32, {}};
  for (int d = 0; d < x.shape.rank(); ++d) {
    if (d != dim) y.shape.push_back(x.shape[d]);
  }
  return {y};
}

ShardingRule shard_argmax(const TypeArgs& args) {
  std::string in, out;
  for (int dim = 0; dim < args.in[0].shape.rank(); ++dim) {
    const char letter = static_cast<char>('a' + dim);
    in += letter;
    if (dim == args.attrs.as<ArgmaxAttrs>().dim) {
      in += '!';
    } else {
      out += letter;
    }
  }
  return parse_rule(in + "->" + out, args.in, args.out);
}

void kernel_argmax(const KernelArgs& args) {
  const Lines lines(args.in[0].type.shape, static_cast<int>(args.attrs.as<ArgmaxAttrs>().dim));
  const auto y = args.out[0].as<int32_t>();
  with_number("argmax", args.in[0].type.dtype, [&](auto zero) {
    const auto x = args.in[0].as<decltype(zero)>();
    for (int64_t line = 0; line < lines.count; ++line) {
      int64_t best = 0;
      for (int64_t i = 1; i < lines.size; ++i) {
        if (widen(x[lines.at(line, i)]) > widen(x[lines.at(line, best)])) best = i;
      }
      y[static_cast<size_t>(line)] = static_cast<int32_t>(best);
    }
  });
}

std::vector<Example> examples_argmax() {
  return {{{f32({4, 6})}, Attrs::of(ArgmaxAttrs{1})},
          {{f32({3, 4, 2})}, Attrs::of(ArgmaxAttrs{1})},
          {{i32({6, 5})}, Attrs::of(ArgmaxAttrs{1}), {integers(0, 3)}}};
}

}  // namespace along_dim_op

namespace ops {
extern const OpDef cumsum{
    {"cumsum", &Attrs::parse<CumsumAttrs>},
    {
        .doc = "y[i] = sum of x[j] over j <= i along dim",
        .inputs = "x",
        .infer = along_dim_op::infer_cumsum,
        .grad = along_dim_op::grad_cumsum,
        .shard = along_dim_op::shard_cumsum,
        .cost = along_dim_op::cost,
        .kernel = along_dim_op::kernel_cumsum,
        .may_overwrite = {{0, 0}},
        .examples = along_dim_op::examples_cumsum,
    },
};
extern const OpDef argmax{
    {"argmax", &Attrs::parse<ArgmaxAttrs>},
    {
        .doc = "y = first index of the largest element along dim",
        .inputs = "x",
        .infer = along_dim_op::infer_argmax,
        .grad = Facet<GradFn>::none("integer result"),
        .shard = along_dim_op::shard_argmax,
        .cost = along_dim_op::cost,
        .kernel = along_dim_op::kernel_argmax,
        .examples = along_dim_op::examples_argmax,
    },
};
}  // namespace ops

Tensor cumsum(const Tensor& x, int dim, bool reverse) {
  return apply1(ops::cumsum, {x}, Attrs::of(CumsumAttrs{settle_dim("cumsum", x.type(), dim), reverse}));
}

Tensor argmax(const Tensor& x, int dim) {
  return apply1(ops::argmax, {x}, Attrs::of(ArgmaxAttrs{settle_dim("argmax", x.type(), dim)}));
}

}  // namespace trireme
