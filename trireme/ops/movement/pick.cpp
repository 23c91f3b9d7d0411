// pick: y[*] = x[*, ids[*]]; ids outside 0..v-1 pick 0
//
// v may be cut: a piece picks what lies in its own coordinates, and the pieces' results are a partial sum.
#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace pick_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  const TensorType& ids = args.in[1];
  require(is_floating(x.dtype) && x.shape.rank() >= 1 && leading(x.shape) == ids.shape,
          "pick: x must be floating, of the shape of ids and one dimension more (x {}, ids {})", said(x), said(ids));
  require(is_index(ids.dtype), "pick: ids must be i32 or i64 (ids {})", said(ids));
  return {{x.dtype, ids.shape}};
}

std::vector<Tensor> grad(const GradArgs& args) {
  const Tensor& x = args.in[0];
  if (!args.wanted[0]) return {{}, {}};
  const Tensor where = one_hot(args.in[1], x.size(-1), x.dtype());
  return {mul(where, unsqueeze(args.dout[0], args.dout[0].rank())), {}};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*v,*->*", args.in, args.out, {.linear = {{0}}});
}

// Only the elements picked are read.
Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = static_cast<double>(args.in[1].bytes()) + 2 * static_cast<double>(args.out[0].bytes())};
}

void kernel(const KernelArgs& args) {
  const int last = args.in[0].type.shape.rank() - 1;
  const int64_t start = args.in_start(0, last);
  const int64_t size = args.in[0].type.shape[last];
  with_floating("pick", args.out[0].type.dtype, [&]<class T>(T) {
    const auto x = args.in[0].as<T>();
    const auto y = args.out[0].as<T>();
    with_index("pick", args.in[1].type.dtype, [&]<class I>(I) {
      const auto ids = args.in[1].as<I>();
      for (size_t row = 0; row < y.size(); ++row) {
        const int64_t at = static_cast<int64_t>(ids[row]) - start;
        y[row] = at >= 0 && at < size ? x[row * static_cast<size_t>(size) + static_cast<size_t>(at)] : store<T>(0);
      }
    });
  });
}

std::vector<Example> examples() {
  return {{.in = {f32({4, 6}), i32({4})}, .fill = {{}, integers(0, 6)}},
          {.in = {f32({2, 3, 4}), i64({2, 3})}, .fill = {{}, integers(-1, 5)}}};
}

}  // namespace pick_op

namespace ops {
extern const OpDef pick{
    {"pick", &Attrs::parse<NoAttrs>},
    {
        .doc = "y[*] = x[*, ids[*]], 0 where ids is outside",
        .inputs = "x, ids",
        .infer = pick_op::infer,
        .grad = pick_op::grad,
        .shard = pick_op::shard,
        .cost = pick_op::cost,
        .kernel = pick_op::kernel,
        .traits = {.reads_place = true},
        .examples = pick_op::examples,
    },
};
}  // namespace ops

Tensor pick(const Tensor& x, const Tensor& ids) {
  return apply1(ops::pick, {x, ids});
}

Tensor cross_entropy_in_parts(const Tensor& logits, const Tensor& labels) {
  const Tensor x = cast(logits, DType::kF32);
  const Tensor shifted = sub(x, stop_gradient(reduce_max(x, {-1}, true)));
  return sub(log(reduce_sum(exp(shifted), {-1})), pick(shifted, labels));
}

}  // namespace trireme
