// concat: y is all operands laid end to end along one dimension.
#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/movement/movement.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace concat_op {

int dim_of(const Attrs& attrs) {
  return static_cast<int>(attrs.as<ConcatAttrs>().dim);
}

std::vector<TensorType> infer(const InferArgs& args) {
  TensorType y = args.in[0];
  const int dim = dim_of(args.attrs);
  require(dim >= 0 && dim < y.shape.rank(), "concat: no dimension {} in operand 0 ({}); dimensions are 0 to {}", dim,
          said(y), y.shape.rank() - 1);
  y.shape[dim] = 0;
  for (size_t i = 0; i < args.in.size(); ++i) {
    const TensorType& x = args.in[i];
    TensorType other = x;
    if (x.shape.rank() == y.shape.rank()) other.shape[dim] = y.shape[dim];
    require(other == y,
            "concat: operand {} is {}, operand 0 is {}; they may differ in the size of dimension "
            "{} only",
            i, said(x), said(args.in[0]), dim);
    y.shape[dim] += x.shape[dim];
  }
  return {y};
}

std::vector<Tensor> grad(const GradArgs& args) {
  const int dim = dim_of(args.attrs);
  std::vector<Tensor> out;
  int64_t start = 0;
  for (size_t i = 0; i < args.in.size(); ++i) {
    const int64_t size = args.in[i].size(dim);
    out.push_back(args.wanted[i] ? slice(args.dout[0], dim, start, size) : Tensor{});
    start += size;
  }
  return out;
}

// All dimensions but the joined one may be cut.
ShardingRule shard(const TypeArgs& args) {
  std::string one;
  for (int dim = 0; dim < args.out[0].shape.rank(); ++dim) {
    one += dim == dim_of(args.attrs) ? '.' : static_cast<char>('a' + dim);
  }
  std::string text = one;
  std::vector<int> all = {0};
  for (size_t i = 1; i < args.in.size(); ++i) {
    text += "," + one;
    all.push_back(static_cast<int>(i));
  }
  return parse_rule(text + "->" + one, args.in, args.out, {.linear = {all}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  const int dim = dim_of(args.attrs);
  Shape start = origin(args.out[0].type.shape.rank());
  for (const View& x : args.in) {
    const Shape& size = x.type.shape;
    copy_box(x, walk_from(size, origin(size.rank())), args.out[0], walk_from(args.out[0].type.shape, start), size);
    start[dim] += size[dim];
  }
}

std::vector<Example> examples() {
  return {{{f32({4, 6}), f32({4, 2})}, Attrs::of(ConcatAttrs{1})},
          {{f32({2, 6}), f32({1, 6}), f32({3, 6})}, Attrs::of(ConcatAttrs{0})},
          {{f32({4, 6})}, Attrs::of(ConcatAttrs{0})},
          {{i64({6}), i64({6})}, Attrs::of(ConcatAttrs{0}), {integers(-9, 9), integers(-9, 9)}}};
}

}  // namespace concat_op

namespace ops {
extern const OpDef concat{
    {"concat", &Attrs::parse<ConcatAttrs>},
    {
        .doc = "y = all x end to end along dim",
        .inputs = "x...",
        .infer = concat_op::infer,
        .grad = concat_op::grad,
        .shard = concat_op::shard,
        .cost = concat_op::cost,
        .kernel = concat_op::kernel,
        .examples = concat_op::examples,
    },
};
}  // namespace ops

Tensor concat(const std::vector<Tensor>& tensors, int dim) {
  require(!tensors.empty(), "concat: no operands; give one or more");
  dim = settle_dim("concat", tensors.front().type(), dim);
  return apply(ops::concat, tensors, Attrs::of(ConcatAttrs{dim})).front();
}

}  // namespace trireme
