// attention_merge: the attention over all keys from those over two parts a and b of them:
//   lse = ln(exp(lse_a) + exp(lse_b)), out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b
//
// out is [b,s,h,d], lse [b,h,s] as attention gives them. A query that sees no key of a part has
// out 0 and lse -infinity there.
#include <algorithm>
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace attention_merge_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& out = args.in[0];
  const TensorType& lse = args.in[1];
  const bool fits = is_floating(out.dtype) && out.shape.rank() == 4 && args.in[2] == out && args.in[3] == lse &&
                    lse.dtype == statistic_type(out.dtype) &&
                    lse.shape == Shape({out.shape[0], out.shape[2], out.shape[1]});
  require(fits,
          "attention_merge: out_a and out_b must be alike [b,s,h,d], lse_a and lse_b alike [b,h,s] "
          "(out_a {}, lse_a {}, out_b {}, lse_b {})",
          said(out), said(lse), said(args.in[2]), said(args.in[3]));
  return {out, lse};
}

// With w = exp(lse_a - lse) = sigmoid(lse_a - lse_b): dout_a = w dout, and lse_a is due
// w dlse + w (1 - w) sum_d dout (out_a - out_b); b alike with 1 - w and the sum's other sign.
std::vector<Tensor> grad(const GradArgs& args) {
  const Tensor& a = args.in[0];
  const Tensor& b = args.in[2];
  const Tensor w = sigmoid(sub(args.in[1], args.in[3]));
  const Tensor rest = add_scalar(neg(w), 1);
  std::vector<Tensor> d(4);
  if (args.dout[0]) {
    const auto by_query = [&](const Tensor& weight) { return cast(unsqueeze(swap_dims(weight, 1, 2), 3), a.dtype()); };
    d[0] = mul(args.dout[0], by_query(w));
    d[2] = mul(args.dout[0], by_query(rest));
    const Tensor gain = cast(reduce_sum(mul(args.dout[0], sub(a, b)), {-1}), w.dtype());
    d[1] = mul(mul(w, rest), swap_dims(gain, 1, 2));
    d[3] = neg(d[1]);
  }
  if (args.dout[1]) {
    const Tensor of_a = mul(w, args.dout[1]);
    const Tensor of_b = mul(rest, args.dout[1]);
    d[1] = d[1] ? add(d[1], of_a) : of_a;
    d[3] = d[3] ? add(d[3], of_b) : of_b;
  }
  return d;
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("bshd!,bhs,bshd!,bhs->bshd!,bhs", args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 3 * static_cast<double>(args.out[0].elements()), .bytes = tensor_bytes(args)};
}

template <class T>
void merge(const KernelArgs& args) {
  using S = Statistic<T>;
  const Shape& shape = args.out[0].type.shape;
  const auto a = args.in[0].as<T>();
  const auto b = args.in[2].as<T>();
  const auto out = args.out[0].as<T>();
  const auto width = static_cast<size_t>(shape[3]);
  for (int64_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
    const int64_t head = row % shape[2];
    const int64_t query = row / shape[2] % shape[1];
    const int64_t batch = row / shape[2] / shape[1];
    const auto line = static_cast<size_t>((batch * shape[2] + head) * shape[1] + query);
    const double lse_a = load(args.in[1].as<S>()[line]);
    const double lse_b = load(args.in[3].as<S>()[line]);
    const double max = std::max(lse_a, lse_b);
    const bool none = std::isinf(max) && max < 0;
    const double lse = none ? max : max + std::log(std::exp(lse_a - max) + std::exp(lse_b - max));
    const double of_a = none ? 0 : std::exp(lse_a - lse);
    const double of_b = none ? 0 : std::exp(lse_b - lse);
    args.out[1].as<S>()[line] = static_cast<S>(lse);
    for (size_t i = static_cast<size_t>(row) * width; i < static_cast<size_t>(row + 1) * width; ++i)
      out[i] = store<T>(of_a * load(a[i]) + of_b * load(b[i]));
  }
}

void kernel(const KernelArgs& args) {
  with_floating("attention_merge", args.in[0].type.dtype, [&](auto zero) { merge<decltype(zero)>(args); });
}

std::vector<Example> examples() {
  return {{.in = {f32({2, 3, 6, 4}), f32({2, 6, 3}), f32({2, 3, 6, 4}), f32({2, 6, 3})}},
          {.in = {f32({3, 4, 1, 2}), f32({3, 1, 4}), f32({3, 4, 1, 2}), f32({3, 1, 4})}}};
}

}  // namespace attention_merge_op

namespace ops {
extern const OpDef attention_merge{
    {"attention_merge", &Attrs::parse<NoAttrs>},
    {
        .doc = "out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b, lse = ln(exp(lse_a) + exp(lse_b))",
        .inputs = "out_a, lse_a, out_b, lse_b",
        .infer = attention_merge_op::infer,
        .grad = attention_merge_op::grad,
        .shard = attention_merge_op::shard,
        .cost = attention_merge_op::cost,
        .kernel = attention_merge_op::kernel,
        .may_overwrite = {{0, 0}, {0, 2}, {1, 1}, {1, 3}},
        .examples = attention_merge_op::examples,
    },
};
}  // namespace ops
}  // namespace trireme
