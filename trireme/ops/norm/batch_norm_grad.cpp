// batch_norm_sums: dgamma[c] = sum_* dz[*,c] n[*,c] and dbeta[c] = sum_* dz[*,c], n = (x - mean) / sqrt(var + eps)
// batch_norm_grad: dx[*,c] = gamma rstd (dz - dbeta / count - n dgamma / count), or gamma rstd dz where count is 0
//
// dz is dy where batch_norm's y is above 0, if that was cut off by relu: y is found again from x (attribute `relu`), or
// given, where a residual was added; then dz is a third result, which is the gradient of the residual too.
#include "trireme/base/said.h"
#include "trireme/ops/norm/batch_norm.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace batch_norm_grad_op {

using namespace detail;

void check(const char* op, const InferArgs& args, size_t from, size_t to) {
  const TensorType& x = args.in[0];
  bool fits = is_floating(x.dtype) && x.shape.rank() >= 1 && args.in[1] == x;
  for (size_t i = from; i < to; ++i) fits = fits && args.in[i] == channel_type(x);
  require(fits, "{}: operands do not belong together (x {}, dy {}, gamma {}, beta {}, mean {}, var {})", op, said(x),
          said(args.in[1]), said(args.in[2]), said(args.in[3]), said(args.in[4]), said(args.in[5]));
}

std::vector<TensorType> sums_infer(const InferArgs& args) {
  require(args.in.size() == 6 || args.in.size() == 7, "batch_norm_sums: {} operands given; it takes 6, or 7 with y",
          args.in.size());
  check("batch_norm_sums", args, 2, 6);
  std::vector<TensorType> out{args.in[2], args.in[2]};
  if (args.in.size() < 7) return out;
  require(args.in[6] == args.in[0], "batch_norm_sums: y must be of x's type (x {}, y {})", said(args.in[0]),
          said(args.in[6]));
  out.push_back(args.in[0]);
  return out;
}

std::vector<TensorType> infer(const InferArgs& args) {
  check("batch_norm_grad", args, 2, 8);
  return {args.in[0]};
}

ShardingRule sums_shard(const TypeArgs& args) {
  const RuleOptions options{.linear = {{1}}};
  if (args.in.size() == 7) return parse_rule("*c,*c,c,c,c,c,*c->c,c,*c", args.in, args.out, options);
  return parse_rule("*c,*c,c,c,c,c->c,c", args.in, args.out, options);
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*c,*c,c,c,c,c,c,c->*c", args.in, args.out, {.linear = {{1, 6, 7}}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 6.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

template <class T>
void sums_of(const KernelArgs& args) {
  using S = Statistic<T>;
  const bool relu = args.attrs.as<BatchNormAttrs>().relu;
  const auto channels = static_cast<size_t>(args.in[2].elements());
  const auto x = args.in[0].as<T>();
  for (size_t c = 0; c < channels; ++c) {
    const ChannelNorm norm = channel_norm<S>(args, 2, c);
    double dgamma = 0, dbeta = 0;
    for (size_t i = c; i < x.size(); i += channels) {
      double dz = load(args.in[1].as<T>()[i]);
      if (relu && !(norm.value(load(x[i])) > 0)) dz = 0;
      if (args.in.size() == 7) {
        if (!(load(args.in[6].as<T>()[i]) > 0)) dz = 0;
        args.out[2].as<T>()[i] = store<T>(dz);
      }
      dgamma += dz * norm.normal(load(x[i]));
      dbeta += dz;
    }
    args.out[0].as<S>()[c] = store<S>(dgamma);
    args.out[1].as<S>()[c] = store<S>(dbeta);
  }
}

template <class T>
void backward(const KernelArgs& args) {
  using S = Statistic<T>;
  const auto& attrs = args.attrs.as<BatchNormAttrs>();
  const double share = attrs.count == 0 ? 0 : 1 / static_cast<double>(attrs.count);
  const auto channels = static_cast<size_t>(args.in[2].elements());
  const auto x = args.in[0].as<T>();
  for (size_t c = 0; c < channels; ++c) {
    const ChannelNorm norm = channel_norm<S>(args, 2, c);
    const double dgamma = load(args.in[6].as<S>()[c]) * share;
    const double dbeta = load(args.in[7].as<S>()[c]) * share;
    for (size_t i = c; i < x.size(); i += channels) {
      double dz = load(args.in[1].as<T>()[i]);
      if (attrs.relu && !(norm.value(load(x[i])) > 0)) dz = 0;
      args.out[0].as<T>()[i] = store<T>(norm.gamma * norm.rstd * (dz - dbeta - norm.normal(load(x[i])) * dgamma));
    }
  }
}

void sums_kernel(const KernelArgs& args) {
  with_floating("batch_norm_sums", args.in[0].type.dtype, [&](auto zero) { sums_of<decltype(zero)>(args); });
}
void kernel(const KernelArgs& args) {
  with_floating("batch_norm_grad", args.in[0].type.dtype, [&](auto zero) { backward<decltype(zero)>(args); });
}

Example example(Shape shape, BatchNormAttrs attrs) {
  const TensorType x{DType::kF32, shape};
  const TensorType c = channel_type(x);
  return {.in = {x, x, c, c, c, c},
          .attrs = Attrs::of(attrs),
          .fill = {integers(-3, 4), {}, uniform(1, 2), uniform(0, 0), uniform(0.5, 0.5), uniform(0.5, 2)}};
}

std::vector<Example> sums_examples() {
  std::vector<Example> out{example({2, 6, 3, 4}, {}), example({6, 4}, {.relu = true}), example({2, 6, 4}, {})};
  out[2].in.push_back(out[2].in[0]);
  out[2].fill.push_back(integers(-1, 2));
  return out;
}

std::vector<Example> examples() {
  std::vector<Example> out{example({2, 6, 3, 4}, {}), example({6, 4}, {.count = 6, .relu = true}),
                           example({2, 6, 4}, {.count = 12})};
  for (Example& e : out) e.in.insert(e.in.end(), {e.in[2], e.in[2]});
  return out;
}

}  // namespace batch_norm_grad_op

namespace ops {
extern const OpDef batch_norm_sums{
    {"batch_norm_sums", &Attrs::parse<BatchNormAttrs>},
    {
        .doc = "dgamma[c] = sum_* dz n and dbeta[c] = sum_* dz of batch_norm; with y also dz",
        .inputs = "x, dy, gamma, beta, mean, var, y...",
        .infer = batch_norm_grad_op::sums_infer,
        .grad = Facet<GradFn>::none("a gradient is not differentiated again"),
        .shard = batch_norm_grad_op::sums_shard,
        .cost = batch_norm_grad_op::cost,
        .kernel = batch_norm_grad_op::sums_kernel,
        .may_overwrite = {{2, 1}, {2, 6}},
        .examples = batch_norm_grad_op::sums_examples,
    },
};
extern const OpDef batch_norm_grad{
    {"batch_norm_grad", &Attrs::parse<BatchNormAttrs>},
    {
        .doc = "dx[*,c] = gamma rstd (dz - dbeta / count - n dgamma / count) of batch_norm",
        .inputs = "x, dy, gamma, beta, mean, var, dgamma, dbeta",
        .infer = batch_norm_grad_op::infer,
        .grad = Facet<GradFn>::none("a gradient is not differentiated again"),
        .shard = batch_norm_grad_op::shard,
        .cost = batch_norm_grad_op::cost,
        .kernel = batch_norm_grad_op::kernel,
        .may_overwrite = {{0, 1}, {0, 0}},
        .examples = batch_norm_grad_op::examples,
        .in_part = detail::in_part_of_batch<BatchNormAttrs>,
    },
};
}  // namespace ops
}  // namespace trireme
