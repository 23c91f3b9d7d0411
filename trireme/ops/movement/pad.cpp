// pad: y is x with `before` and `after` elements of one value added around it in each dimension.
#include "trireme/base/said.h"
#include "trireme/ops/movement/movement.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/most_elements.h"
#include "trireme/tensor/with_element.h"

namespace trireme {
namespace pad_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<PadAttrs>();
  const TensorType& x = args.in[0];
  const auto rank = static_cast<size_t>(x.shape.rank());
  require(attrs.before.size() == rank && attrs.after.size() == rank,
          "pad: {} and {} widths for x {}; give one before and one after per dimension", attrs.before.size(),
          attrs.after.size(), said(x));
  TensorType y{x.dtype, {}};
  for (size_t dim = 0; dim < rank; ++dim) {
    const bool fits = attrs.before[dim] >= 0 && attrs.before[dim] <= kMostElements && attrs.after[dim] >= 0 &&
                      attrs.after[dim] <= kMostElements;
    require(fits, "pad: widths {} and {} of dimension {}; they must be 0 or more, up to 2^58", attrs.before[dim],
            attrs.after[dim], dim);
    y.shape.push_back(attrs.before[dim] + x.shape[static_cast<int>(dim)] + attrs.after[dim]);
  }
  return {y};
}

std::vector<Tensor> grad(const GradArgs& args) {
  const Shape& shape = args.in[0].shape();
  return {slice(args.dout[0], args.attrs.as<PadAttrs>().before, std::vector<int64_t>(shape.begin(), shape.end()))};
}

ShardingRule shard(const TypeArgs& args) {
  std::string text;
  for (int dim = 0; dim < args.in[0].shape.rank(); ++dim) {
    const bool whole = args.in[0].shape[dim] == args.out[0].shape[dim];
    text += whole ? static_cast<char>('a' + dim) : '.';
  }
  RuleOptions options;
  if (args.attrs.as<PadAttrs>().value == 0) options.linear = {{0}};
  return parse_rule(text + "->" + text, args.in, args.out, options);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<PadAttrs>();
  const View& y = args.out[0];
  with_element("pad", y.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (T& element : y.as<T>()) element = store<T>(attrs.value);
  });
  const Shape start{std::span<const int64_t>(attrs.before)};
  const Shape& size = args.in[0].type.shape;
  copy_box(args.in[0], walk_from(size, origin(size.rank())), y, walk_from(y.type.shape, start), size);
}

std::vector<Example> examples() {
  return {{{f32({4, 3})}, Attrs::of(PadAttrs{{0, 2}, {0, 1}})},
          {{f32({3, 6, 2})}, Attrs::of(PadAttrs{{1, 0, 1}, {2, 0, 0}, -1.5})},
          {{i64({6})}, Attrs::of(PadAttrs{{0}, {0}}), {integers(-9, 9)}}};
}

}  // namespace pad_op

namespace ops {
extern const OpDef pad{
    {"pad", &Attrs::parse<PadAttrs>},
    {
        .doc = "y = x with before and after elements of a value around it",
        .inputs = "x",
        .infer = pad_op::infer,
        .grad = pad_op::grad,
        .shard = pad_op::shard,
        .cost = pad_op::cost,
        .kernel = pad_op::kernel,
        .examples = pad_op::examples,
    },
};
}  // namespace ops

Tensor pad(const Tensor& x, std::vector<int64_t> before, std::vector<int64_t> after, double value) {
  return apply1(ops::pad, {x}, Attrs::of(PadAttrs{std::move(before), std::move(after), value}));
}

}  // namespace trireme
