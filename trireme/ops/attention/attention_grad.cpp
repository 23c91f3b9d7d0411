// attention_grad: with p = exp(scale q.k - lse), delta_i = dout_i . out_i and ds = p (dout . v -
// delta):
//                 dq_i = scale sum_j ds k_j, dk_j = scale sum_i ds q_i, dv_j = sum_i p dout_i
#include "trireme/ops/attention/attention.h"

#include <algorithm>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace ops {
extern const OpDef attention_grad;
}

namespace attention_grad_op {

using namespace detail;

std::vector<TensorType> infer(const InferArgs& args) {
  check_attention("attention_grad", args);
  const TensorType& q = args.in[0];
  require(args.in[3] == q && args.in[4] == lse_type(q) && args.in[5] == q,
          "attention_grad: out and dout must be {} and lse {} (out {}, lse {}, dout {})", said(q), said(lse_type(q)),
          said(args.in[3]), said(args.in[4]), said(args.in[5]));
  return {q, args.in[1], args.in[2]};
}

ShardingRule shard(const TypeArgs& args) {
  RuleOptions options = attention_rule(args);
  options.linear = {{5}};
  return parse_rule("bs!(gr!)d!,bt!gd!,bt!gd!,bs!(gr!)d!,b(gr!)s!,bs!(gr!)d!->bs!(gr!)d!,bt!gd!,bt!gd!", args.in,
                    args.out, options);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 10 * pair_elements(args), .bytes = tensor_bytes(args)};
}

template <class T, class S>
void backward(const KernelArgs& args) {
  const Heads<T> heads(args);
  const auto q = args.in[0].as<T>();
  const auto k = args.in[1].as<T>();
  const auto v = args.in[2].as<T>();
  const auto out = args.in[3].as<T>();
  const auto lse = args.in[4].as<S>();
  const auto dout = args.in[5].as<T>();
  std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
  heads.each_query([&](int64_t b, int64_t i, int64_t h) {
    const size_t at = heads.query(b, i, h);
    const double delta = heads.dot(dout.subspan(at), out.subspan(at));
    for (int64_t j = 0; j < heads.keys(i); ++j) {
      const size_t key = heads.key(b, j, h);
      const double p = std::exp(heads.score(b, i, j, h) - load(lse[heads.line(b, i, h)]));
      const double ds = heads.scale() * p * (heads.dot(dout.subspan(at), v.subspan(key)) - delta);
      for (size_t x = 0; x < heads.d(); ++x) {
        dv[key + x] += p * load(dout[at + x]);
        dq[at + x] += ds * load(k[key + x]);
        dk[key + x] += ds * load(q[at + x]);
      }
    }
  });
  const auto write = [](std::span<const double> from, const View& to) {
    std::transform(from.begin(), from.end(), to.as<T>().begin(), store<T>);
  };
  write(dq, args.out[0]);
  write(dk, args.out[1]);
  write(dv, args.out[2]);
}

void kernel(const KernelArgs& args) {
  with_floating("attention_grad", args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    backward<T, std::conditional_t<std::is_same_v<T, double>, double, float>>(args);
  });
}

// Keys and values go around as in the forward pass. What is due to them is summed on its way: it
// sets out in step 1, one place after them, and the rank they belong to adds its own share, of
// step 0, when it is back. Sums are taken in the type of lse.
std::vector<Tensor> ring(const RingArgs& args) {
  auto attrs = args.attrs.as<AttentionAttrs>();
  const DType wide = args.in[4].dtype();
  std::vector<Tensor> in(args.in.begin(), args.in.end());
  Tensor dq;
  std::vector<Tensor> own, travelling;
  for (attrs.ring_step = 0; attrs.ring_step < args.ranks; ++attrs.ring_step) {
    const bool last = attrs.ring_step + 1 == args.ranks;
    const std::vector<Tensor> next = last ? std::vector<Tensor>{} : pass_on(std::span(in).subspan(1, 2), args.group);
    const std::vector<Tensor> d = apply(ops::attention_grad, in, Attrs::of(attrs));
    dq = dq ? add(dq, cast(d[0], wide)) : cast(d[0], wide);
    std::vector<Tensor> due{cast(d[1], wide), cast(d[2], wide)};
    if (own.empty()) {
      own = std::move(due);
    } else {
      for (size_t i = 0; i < travelling.size(); ++i) due[i] = add(travelling[i], due[i]);
      travelling = pass_on(due, args.group);
    }
    if (!last) std::copy(next.begin(), next.end(), in.begin() + 1);
  }
  const auto sum = [&](size_t i) { return cast(add(own[i], travelling[i]), args.in[1].dtype()); };
  return {cast(dq, args.in[0].dtype()), sum(0), sum(1)};
}

std::vector<Example> examples() {
  std::vector<Example> out = attention_examples();
  for (Example& e : out) {
    const TensorType q = e.in[0];
    // A normaliser in the range of real ones keeps the probabilities of the check below 1.
    e.fill = {{}, {}, {}, {}, uniform(3, 4)};
    e.in.insert(e.in.end(), {q, lse_type(q), q});
  }
  return out;
}

}  // namespace attention_grad_op

namespace ops {
extern const OpDef attention_grad{
    {"attention_grad", &Attrs::parse<AttentionAttrs>},
    {
        .doc = "dq, dk and dv of attention, from its results",
        .inputs = "q, k, v, out, lse, dout",
        .infer = attention_grad_op::infer,
        .grad = Facet<GradFn>::none("a gradient is not differentiated again"),
        .shard = attention_grad_op::shard,
        .cost = attention_grad_op::cost,
        .kernel = attention_grad_op::kernel,
        .may_overwrite = {{0, 5}, {0, 3}},
        .examples = attention_grad_op::examples,
        .ring = attention_grad_op::ring,
    },
};
}  // namespace ops
}  // namespace trireme
