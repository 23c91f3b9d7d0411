// attention: out[b,i,h,:] = sum_j p[b,h,i,j] v[b,j,h/r,:], p[b,h,i,:] = softmax_j(scale q[b,i,h,:]
// . k[b,j,h/r,:])
//
// q is [b,s,h,d]; k and v are [b,t,g,d] with h = g r: each key and value head serves r query heads.
// With `causal` query i sees keys 0 .. i + t - s. The second result, lse[b,h,i] = ln sum_j
// exp(scale q.k), f32 (f64 for f64), is what the gradient needs instead of p.
//
// Cut along s and t over the same ranks it runs in a ring (Liu et al., 2023: Ring Attention with
// Blockwise Transformers): in each of as many steps as there are ranks, a rank's queries meet the
// keys and values that it holds, while those go on to the next rank; the results of the steps are
// merged by their lse (attention_merge).
#include "trireme/ops/attention/attention.h"

#include <algorithm>
#include <limits>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace ops {
extern const OpDef attention;
extern const OpDef attention_grad;
}  // namespace ops

namespace detail {

void check_attention(const char* op, const InferArgs& args) {
  const TensorType& q = args.in[0];
  const TensorType& k = args.in[1];
  const TensorType& v = args.in[2];
  const auto what = [&] { return fmt::format("q {}, k {}, v {}", to_string(q), to_string(k), to_string(v)); };
  require(is_floating(q.dtype) && q.shape.rank() == 4 && k.shape.rank() == 4 && k.dtype == q.dtype && k == v,
          "{}: q must be [b,s,h,d] and k and v alike [b,t,g,d], of one floating type ({})", op, said_by(what));
  const AttentionSizes n = sizes_of(q, k);
  require(k.shape[0] == n.b && k.shape[3] == n.d, "{}: batch and head sizes of q and k differ; they must be equal ({})",
          op, said_by(what));
  require(n.g > 0 && n.h > 0 && n.h % n.g == 0, "{}: {} query heads are not a multiple of {} key heads ({})", op, n.h,
          n.g, said_by(what));
  require(n.d > 0 && n.t > 0, "{}: no keys or no head size ({})", op, said_by(what));
  require(!args.attrs.as<AttentionAttrs>().causal || n.t >= n.s,
          "{}: causal attention of {} queries to {} keys; there must be as many keys as queries or "
          "more ({})",
          op, n.s, n.t, said_by(what));
}

}  // namespace detail

namespace attention_op {

using namespace detail;

std::vector<TensorType> infer(const InferArgs& args) {
  check_attention("attention", args);
  return {args.in[0], lse_type(args.in[0])};
}

// dlse adds dlse p to the gradient of the scores: scale dlse sum_j p k_j to dq, which is attention
// with k as values, and scale sum_i dlse p q_i to dk, which is the gradient of the values under the
// cotangent scale dlse q.
std::vector<Tensor> grad(const GradArgs& args) {
  const Tensor& q = args.in[0];
  const Tensor& k = args.in[1];
  std::vector<Tensor> d(3);
  if (args.dout[0]) {
    d = apply(ops::attention_grad, {q, k, args.in[2], args.out[0], args.out[1], args.dout[0]}, args.attrs);
  }
  if (args.dout[1]) {
    const double factor = scale_of(args.attrs.as<AttentionAttrs>(), q.size(3));
    const Tensor by_query = unsqueeze(swap_dims(args.dout[1], 1, 2), 3);
    const Tensor dlse = scale(broadcast_to(cast(by_query, q.dtype()), q.shape()), factor);
    const Tensor mean_key = apply(ops::attention, {q, k, k}, args.attrs)[0];
    const Tensor dq = mul(dlse, mean_key);
    const Tensor dk =
        apply(ops::attention_grad, {q, k, args.in[2], args.out[0], args.out[1], mul(dlse, q)}, args.attrs)[2];
    d[0] = d[0] ? add(d[0], dq) : dq;
    d[1] = d[1] ? add(d[1], dk) : dk;
  }
  return d;
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("bs!(gr!)d!,bt!gd!,bt!gd!->bs!(gr!)d!,b(gr!)s!", args.in, args.out, attention_rule(args));
}

Cost cost(const TypeArgs& args) {
  return {.flops = 4 * pair_elements(args), .bytes = tensor_bytes(args)};
}
template <class T, class S>
void forward(const KernelArgs& args) {
  const Heads<T> heads(args);
  const auto v = args.in[2].as<T>();
  const auto out = args.out[0].as<T>();
  const auto lse = args.out[1].as<S>();
  std::vector<double> p, sum(heads.d());
  heads.each_query([&](int64_t b, int64_t i, int64_t h) {
    p.clear();
    for (int64_t j = 0; j < heads.keys(i); ++j) p.push_back(heads.score(b, i, j, h));
    if (p.empty()) {  // a step of a ring that has nothing for these queries
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(heads.query(b, i, h)), heads.d(), T{});
      lse[heads.line(b, i, h)] = -std::numeric_limits<S>::infinity();
      return;
    }
    const double max = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& x : p) total += x = std::exp(x - max);
    std::fill(sum.begin(), sum.end(), 0.0);
    for (size_t j = 0; j < p.size(); ++j) {
      const size_t at = heads.key(b, static_cast<int64_t>(j), h);
      for (size_t x = 0; x < heads.d(); ++x) sum[x] += p[j] / total * load(v[at + x]);
    }
    for (size_t x = 0; x < heads.d(); ++x) out[heads.query(b, i, h) + x] = store<T>(sum[x]);
    lse[heads.line(b, i, h)] = static_cast<S>(max + std::log(total));
  });
}

void kernel(const KernelArgs& args) {
  with_floating("attention", args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward<T, std::conditional_t<std::is_same_v<T, double>, double, float>>(args);
  });
}

// Results of steps are merged in the type of lse.
std::vector<Tensor> ring(const RingArgs& args) {
  auto attrs = args.attrs.as<AttentionAttrs>();
  const Tensor& q = args.in[0];
  std::vector<Tensor> keys{args.in[1], args.in[2]};
  std::vector<Tensor> merged;
  for (attrs.ring_step = 0; attrs.ring_step < args.ranks; ++attrs.ring_step) {
    const bool last = attrs.ring_step + 1 == args.ranks;
    std::vector<Tensor> next = last ? std::vector<Tensor>{} : pass_on(keys, args.group);
    std::vector<Tensor> step = apply(ops::attention, {q, keys[0], keys[1]}, Attrs::of(attrs));
    step[0] = cast(step[0], step[1].dtype());
    merged = merged.empty() ? step : apply(op("attention_merge"), {merged[0], merged[1], step[0], step[1]});
    keys = std::move(next);
  }
  return {cast(merged[0], q.dtype()), merged[1]};
}

}  // namespace attention_op

namespace ops {
extern const OpDef attention{
    {"attention", &Attrs::parse<AttentionAttrs>},
    {
        .doc = "out[b,i,h,:] = sum_j softmax_j(scale q[b,i,h,:] . k[b,j,g,:]) v[b,j,g,:], g = h/r",
        .inputs = "q, k, v",
        .infer = attention_op::infer,
        .grad = attention_op::grad,
        .shard = attention_op::shard,
        .cost = attention_op::cost,
        .kernel = attention_op::kernel,
        .examples = detail::attention_examples,
        .ring = attention_op::ring,
    },
};
}  // namespace ops

Attention attention_with_lse(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const std::vector<Tensor> out =
      apply(ops::attention, {q, k, v}, Attrs::of(AttentionAttrs{options.causal, options.scale}));
  return {out[0], out[1]};
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  return attention_with_lse(q, k, v, options).out;
}

}  // namespace trireme
