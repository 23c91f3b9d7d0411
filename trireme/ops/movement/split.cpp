// split: the parts of x along one dimension, of the given sizes in order; the inverse of concat.
#include <algorithm>

#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/movement/movement.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/most_elements.h"

namespace trireme {
namespace split_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<SplitAttrs>();
  const TensorType& x = args.in[0];
  const auto dim = static_cast<int>(attrs.dim);
  require(dim >= 0 && dim < x.shape.rank(), "split: no dimension {} in x {}; dimensions are 0 to {}", dim, said(x),
          x.shape.rank() - 1);
  int64_t sum = 0;
  std::vector<TensorType> out;
  for (const int64_t size : attrs.sizes) {
    require(size >= 0 && size <= x.shape[dim],
            "split: a size of {} for dimension {} of x {}; sizes are 0 or more and add up to {}", size, dim, said(x),
            x.shape[dim]);
    sum = std::min(sum + size, kMostElements);
    out.push_back(x);
    out.back().shape[dim] = size;
  }
  require(sum == x.shape[dim], "split: the sizes add up to {}, dimension {} of x {} has {}", sum, dim, said(x),
          x.shape[dim]);
  return out;
}

// The parts' gradients laid end to end; zeros for a part that has none.
std::vector<Tensor> grad(const GradArgs& args) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < args.out.size(); ++i) {
    parts.push_back(args.dout[i] ? args.dout[i] : full(args.in[0].graph(), args.out[i].type(), 0));
  }
  return {concat(parts, static_cast<int>(args.attrs.as<SplitAttrs>().dim))};
}

// All dimensions but the split one may be cut.
ShardingRule shard(const TypeArgs& args) {
  std::string one;
  for (int dim = 0; dim < args.in[0].shape.rank(); ++dim) {
    one += dim == args.attrs.as<SplitAttrs>().dim ? '.' : static_cast<char>('a' + dim);
  }
  std::string text = one + "->";
  for (size_t i = 0; i < args.out.size(); ++i) text += (i > 0 ? "," : "") + one;
  return parse_rule(text, args.in, args.out, {.linear = {{0}}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  const auto dim = static_cast<int>(args.attrs.as<SplitAttrs>().dim);
  Shape start = origin(args.in[0].type.shape.rank());
  for (const View& y : args.out) {
    const Shape& size = y.type.shape;
    copy_box(args.in[0], walk_from(args.in[0].type.shape, start), y, walk_from(size, origin(size.rank())), size);
    start[dim] += size[dim];
  }
}

std::vector<Example> examples() {
  return {{{f32({4, 6})}, Attrs::of(SplitAttrs{1, {2, 4}})},
          {{f32({6, 2, 6})}, Attrs::of(SplitAttrs{0, {1, 3, 2}})},
          {{f32({2, 6, 6})}, Attrs::of(SplitAttrs{2, {2, 2, 2}})},
          {{i64({6})}, Attrs::of(SplitAttrs{0, {6}}), {integers(-9, 9)}}};
}

}  // namespace split_op

namespace ops {
extern const OpDef split{
    {"split", &Attrs::parse<SplitAttrs>},
    {
        .doc = "y_i = the i-th part of x along dim",
        .inputs = "x",
        .infer = split_op::infer,
        .grad = split_op::grad,
        .shard = split_op::shard,
        .cost = split_op::cost,
        .kernel = split_op::kernel,
        .examples = split_op::examples,
    },
};
}  // namespace ops

std::vector<Tensor> split(const Tensor& x, int dim, int parts) {
  dim = settle_dim("split", x.type(), dim);
  require(parts > 0 && x.size(dim) % parts == 0, "split: {} parts do not divide dimension {} of x {}", parts, dim,
          said(x.type()));
  return split(x, dim, std::vector<int64_t>(static_cast<size_t>(parts), x.size(dim) / parts));
}

std::vector<Tensor> split(const Tensor& x, int dim, const std::vector<int64_t>& sizes) {
  dim = settle_dim("split", x.type(), dim);
  return apply(ops::split, {x}, Attrs::of(SplitAttrs{dim, sizes}));
}

}  // namespace trireme
