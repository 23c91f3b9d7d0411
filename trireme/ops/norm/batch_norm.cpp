// batch_norm: y[*,c] = gamma[c] (x[*,c] - mean[c]) / sqrt(var[c] + eps) + beta[c], + residual[*,c] if given, then relu
// if asked
//
// Where mean and variance are those of x (attribute `count`), they come from channel_sums and batch_statistics, and the
// gradient of this op is the whole gradient of x: nothing flows back through mean and var. Otherwise they are operands
// like any other.
#include "trireme/ops/norm/batch_norm.h"

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace ops {
extern const OpDef batch_norm_sums;
extern const OpDef batch_norm_grad;
}  // namespace ops

namespace batch_norm_op {

using namespace detail;

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  const auto& attrs = args.attrs.as<BatchNormAttrs>();
  require(args.in.size() == 5 || args.in.size() == 6,
          "batch_norm: {} operands given; it takes x, gamma, beta, mean, var and at "
          "most a residual",
          args.in.size());
  require(is_floating(x.dtype) && x.shape.rank() >= 1,
          "batch_norm: x must be floating and have 1 dimension or more (x {})", said(x));
  const TensorType channels = channel_type(x);
  for (size_t i = 1; i < 5; ++i) {
    require(args.in[i] == channels,
            "batch_norm: gamma, beta, mean and var must be {}, for the last dimension of x (x {}, gamma {}, beta {}, "
            "mean {}, "
            "var {})",
            said(channels), said(x), said(args.in[1]), said(args.in[2]), said(args.in[3]), said(args.in[4]));
  }
  require(args.in.size() < 6 || args.in[5] == x, "batch_norm: the residual must be of x's type (x {}, residual {})",
          said(x), said(args.in.back()));
  require(attrs.eps > 0 && attrs.count >= 0, "batch_norm: eps is {} and count {}; eps must be above 0, count 0 or more",
          attrs.eps, attrs.count);
  return {x};
}

// What mean and var get where they are no function of x: sums over the positions of their derivatives.
void add_statistics(const GradArgs& args, const Tensor& dgamma, const Tensor& dbeta, std::vector<Tensor>& d) {
  const Tensor variance = add_scalar(args.in[4], args.attrs.as<BatchNormAttrs>().eps);
  if (args.wanted[3]) d[3] = neg(mul(mul(args.in[1], rsqrt(variance)), dbeta));
  if (args.wanted[4]) d[4] = scale(mul(div(args.in[1], variance), dgamma), -0.5);
}

std::vector<Tensor> grad(const GradArgs& args) {
  BatchNormAttrs attrs = args.attrs.as<BatchNormAttrs>();
  const bool residual = args.in.size() == 6;
  const bool masked = residual && attrs.relu;  // y tells where the sum was cut off; without a residual x does
  attrs.relu = attrs.relu && !residual;
  const Tensor& x = args.in[0];
  std::vector<Tensor> operands{x, args.dout[0], args.in[1], args.in[2], args.in[3], args.in[4]};
  if (masked) operands.push_back(args.out[0]);
  const std::vector<Tensor> sums = apply(ops::batch_norm_sums, operands, Attrs::of(attrs));
  const Tensor dz = masked ? sums[2] : args.dout[0];
  std::vector<Tensor> d(args.in.size());
  if (args.wanted[0]) {
    d[0] = apply1(ops::batch_norm_grad, {x, dz, args.in[1], args.in[2], args.in[3], args.in[4], sums[0], sums[1]},
                  Attrs::of(attrs));
  }
  d[1] = sums[0];
  d[2] = sums[1];
  if (attrs.count == 0) add_statistics(args, sums[0], sums[1], d);
  if (residual) d[5] = dz;
  return d;
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule(args.in.size() == 6 ? "*c,c,c,c,c,*c->*c" : "*c,c,c,c,c->*c", args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 4.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

template <class T>
void forward(const KernelArgs& args) {
  const bool relu = args.attrs.as<BatchNormAttrs>().relu;
  const auto channels = static_cast<size_t>(args.in[1].elements());
  const auto x = args.in[0].as<T>();
  for (size_t c = 0; c < channels; ++c) {
    const ChannelNorm norm = channel_norm<Statistic<T>>(args, 1, c);
    for (size_t i = c; i < x.size(); i += channels) {
      double y = norm.value(load(x[i]));
      if (args.in.size() == 6) y += load(args.in[5].as<T>()[i]);
      args.out[0].as<T>()[i] = store<T>(relu && y < 0 ? 0 : y);
    }
  }
}

void kernel(const KernelArgs& args) {
  with_floating("batch_norm", args.in[0].type.dtype, [&](auto zero) { forward<decltype(zero)>(args); });
}

std::vector<Example> examples() {
  const Fill any{};
  const Fill variance = uniform(0.5, 2);
  // Whole numbers less a half: nothing comes near the kink of relu.
  const std::vector<Fill> steps{integers(-3, 4), uniform(1, 2), uniform(0, 0), uniform(0.5, 0.5), variance};
  std::vector<Example> out{{.in = {f32({2, 6, 3, 4}), f32({4}), f32({4}), f32({4}), f32({4})},
                            .attrs = Attrs::of(BatchNormAttrs{}),
                            .fill = {any, any, any, any, variance}},
                           {.in = {f32({6, 4}), f32({4}), f32({4}), f32({4}), f32({4})},
                            .attrs = Attrs::of(BatchNormAttrs{.eps = 1e-3, .relu = true}),
                            .fill = steps},
                           {.in = {f32({6, 4}), f32({4}), f32({4}), f32({4}), f32({4}), f32({6, 4})},
                            .attrs = Attrs::of(BatchNormAttrs{.relu = true}),
                            .fill = steps},
                           {.in = {f32({2, 6, 4}), f32({4}), f32({4}), f32({4}), f32({4})},
                            .attrs = Attrs::of(BatchNormAttrs{.count = 12}),
                            .fill = {any, any, any, any, variance},
                            .skip_gradient = "the gradient of x is that with mean and var as functions of x"}};
  out[2].fill.push_back(uniform(0.1, 0.1));
  return out;
}

}  // namespace batch_norm_op

namespace ops {
extern const OpDef batch_norm{
    {"batch_norm", &Attrs::parse<BatchNormAttrs>},
    {
        .doc = "y[*,c] = gamma[c] (x[*,c] - mean[c]) / sqrt(var[c] + eps) + beta[c], + residual, relu",
        .inputs = "x, gamma, beta, mean, var, residual...",
        .infer = batch_norm_op::infer,
        .grad = batch_norm_op::grad,
        .shard = batch_norm_op::shard,
        .cost = batch_norm_op::cost,
        .kernel = batch_norm_op::kernel,
        .may_overwrite = {{0, 0}, {0, 5}},
        .examples = batch_norm_op::examples,
    },
};
}  // namespace ops

namespace batch_norm_op {

Tensor normalised(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& mean, const Tensor& var,
                  const BatchNormOptions& o, int64_t count) {
  const DType type = statistic_type(x.dtype());
  std::vector<Tensor> operands{x, cast(gamma, type), cast(beta, type), cast(mean, type), cast(var, type)};
  if (o.residual) operands.push_back(o.residual);
  return apply(ops::batch_norm, operands, Attrs::of(BatchNormAttrs{.eps = o.eps, .count = count, .relu = o.relu}))
      .front();
}

}  // namespace batch_norm_op

Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& mean, const Tensor& var,
                  const BatchNormOptions& options) {
  return batch_norm_op::normalised(x, gamma, beta, mean, var, options, 0);
}

BatchNormTraining batch_norm_training(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                      const Tensor& running_mean, const Tensor& running_var, double momentum,
                                      const BatchNormOptions& options) {
  require(x.rank() >= 1 && x.shape().elements() > 0,
          "batch_norm_training: x is {}; it must have elements to take the mean of", said(x.type()));
  const int64_t count = x.shape().elements() / x.size(-1);
  const BatchStatistics now = batch_statistics(channel_sums(x), running_mean, running_var, count, momentum);
  return {batch_norm_op::normalised(x, gamma, beta, now.mean, now.var, options, count), now.running_mean,
          now.running_var};
}

}  // namespace trireme
