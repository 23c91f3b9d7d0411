// slice: y is the box of x that begins at `starts` and has the sizes `sizes`.
#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/movement/movement.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace slice_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<SliceAttrs>();
  const TensorType& x = args.in[0];
  const auto rank = static_cast<size_t>(x.shape.rank());
  require(attrs.starts.size() == rank && attrs.sizes.size() == rank,
          "slice: {} starts and {} sizes for x {}; give one of each per dimension", attrs.starts.size(),
          attrs.sizes.size(), said(x));
  TensorType y{x.dtype, {}};
  for (size_t dim = 0; dim < rank; ++dim) {
    const int64_t start = attrs.starts[dim];
    const int64_t size = attrs.sizes[dim];
    const int64_t whole = x.shape[static_cast<int>(dim)];
    require(start >= 0 && start <= whole && size >= 0 && size <= whole - start,
            "slice: {} elements from {} on of dimension {} of x {}, which has {}", size, start, dim, said(x), whole);
    y.shape.push_back(size);
  }
  return {y};
}

std::vector<Tensor> grad(const GradArgs& args) {
  const auto& attrs = args.attrs.as<SliceAttrs>();
  std::vector<int64_t> after = attrs.starts;
  for (size_t dim = 0; dim < after.size(); ++dim) {
    after[dim] = args.in[0].shape()[static_cast<int>(dim)] - attrs.starts[dim] - attrs.sizes[dim];
  }
  return {pad(args.dout[0], attrs.starts, after)};
}

// A dimension that is taken whole may be cut.
ShardingRule shard(const TypeArgs& args) {
  std::string text;
  for (int dim = 0; dim < args.in[0].shape.rank(); ++dim) {
    const bool whole = args.in[0].shape[dim] == args.out[0].shape[dim];
    text += whole ? static_cast<char>('a' + dim) : '.';
  }
  return parse_rule(text + "->" + text, args.in, args.out, {.linear = {{0}}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = 2.0 * static_cast<double>(args.out[0].bytes())};
}

void kernel(const KernelArgs& args) {
  const Shape start{std::span<const int64_t>(args.attrs.as<SliceAttrs>().starts)};
  const Shape& size = args.out[0].type.shape;
  copy_box(args.in[0], walk_from(args.in[0].type.shape, start), args.out[0], walk_from(size, origin(size.rank())),
           size);
}

std::vector<Example> examples() {
  return {{{f32({4, 6})}, Attrs::of(SliceAttrs{{0, 2}, {4, 3}})},
          {{f32({4, 5, 6})}, Attrs::of(SliceAttrs{{1, 0, 0}, {2, 5, 6}})},
          {{f32({6})}, Attrs::of(SliceAttrs{{0}, {6}})},
          {{i64({4, 6})}, Attrs::of(SliceAttrs{{0, 5}, {4, 1}}), {integers(-9, 9)}}};
}

}  // namespace slice_op

namespace ops {
extern const OpDef slice{
    {"slice", &Attrs::parse<SliceAttrs>},
    {
        .doc = "y = x[starts : starts + sizes]",
        .inputs = "x",
        .infer = slice_op::infer,
        .grad = slice_op::grad,
        .shard = slice_op::shard,
        .cost = slice_op::cost,
        .kernel = slice_op::kernel,
        .examples = slice_op::examples,
    },
};
}  // namespace ops

Tensor slice(const Tensor& x, std::vector<int64_t> starts, std::vector<int64_t> sizes) {
  return apply1(ops::slice, {x}, Attrs::of(SliceAttrs{std::move(starts), std::move(sizes)}));
}

Tensor slice(const Tensor& x, int dim, int64_t start, int64_t size) {
  dim = settle_dim("slice", x.type(), dim);
  std::vector<int64_t> starts(static_cast<size_t>(x.rank()), 0);
  std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
  starts[static_cast<size_t>(dim)] = start;
  sizes[static_cast<size_t>(dim)] = size;
  return slice(x, std::move(starts), std::move(sizes));
}

}  // namespace trireme
