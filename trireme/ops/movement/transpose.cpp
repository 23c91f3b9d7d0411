// transpose: dimension i of y is dimension perm[i] of x.
#include <algorithm>
#include <numeric>

#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/movement/movement.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace transpose_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& perm = args.attrs.as<TransposeAttrs>().perm;
  const TensorType& x = args.in[0];
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> want(static_cast<size_t>(x.shape.rank()));
  std::iota(want.begin(), want.end(), 0);
  require(sorted == want, "transpose: {} does not name each of the {} dimensions of x {} once", args.attrs.text(),
          x.shape.rank(), said(x));
  TensorType y{x.dtype, {}};
  for (const int64_t dim : perm) y.shape.push_back(x.shape[static_cast<int>(dim)]);
  return {y};
}

std::vector<Tensor> grad(const GradArgs& args) {
  const auto& perm = args.attrs.as<TransposeAttrs>().perm;
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return {transpose(args.dout[0], back)};
}

ShardingRule shard(const TypeArgs& args) {
  std::string in, out;
  for (int dim = 0; dim < args.in[0].shape.rank(); ++dim) in += static_cast<char>('a' + dim);
  for (const int64_t dim : args.attrs.as<TransposeAttrs>().perm) out += static_cast<char>('a' + dim);
  return parse_rule(in + "->" + out, args.in, args.out, {.linear = {{0}}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  const auto& perm = args.attrs.as<TransposeAttrs>().perm;
  const auto strides = args.in[0].type.shape.strides();
  Walk from;
  for (size_t i = 0; i < perm.size(); ++i) from.step[i] = strides[static_cast<size_t>(perm[i])];
  const Shape& size = args.out[0].type.shape;
  copy_box(args.in[0], from, args.out[0], walk_from(size, origin(size.rank())), size);
}

std::vector<Example> examples() {
  const auto perm = [](std::vector<int64_t> p) { return Attrs::of(TransposeAttrs{std::move(p)}); };
  return {{{f32({4, 6})}, perm({1, 0})},
          {{f32({2, 6, 3, 4})}, perm({0, 2, 1, 3})},
          {{{DType::kBF16, {2, 3, 4}}}, perm({2, 0, 1})},
          {{i64({2, 6})}, perm({1, 0}), {integers(-9, 9)}}};
}

}  // namespace transpose_op

namespace ops {
extern const OpDef transpose{
    {"transpose", &Attrs::parse<TransposeAttrs>},
    {
        .doc = "dimension i of y is dimension perm[i] of x",
        .inputs = "x",
        .infer = transpose_op::infer,
        .grad = transpose_op::grad,
        .shard = transpose_op::shard,
        .cost = transpose_op::cost,
        .kernel = transpose_op::kernel,
        .examples = transpose_op::examples,
    },
};
}  // namespace ops

Tensor transpose(const Tensor& x, std::vector<int64_t> perm) {
  for (int64_t& dim : perm) dim = settle_dim("transpose", x.type(), dim);
  return apply1(ops::transpose, {x}, Attrs::of(TransposeAttrs{std::move(perm)}));
}

Tensor swap_dims(const Tensor& x, int a, int b) {
  std::vector<int64_t> perm(static_cast<size_t>(x.rank()));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[static_cast<size_t>(settle_dim("swap_dims", x.type(), a))],
            perm[static_cast<size_t>(settle_dim("swap_dims", x.type(), b))]);
  return transpose(x, perm);
}

}  // namespace trireme
