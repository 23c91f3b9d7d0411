// layer_norm: y[*,d] = gamma[d] (x[*,d] - mean[*]) rstd[*] + beta[d],
//             with mean[*] = sum_d x / D and rstd[*] = 1 / sqrt(sum_d (x - mean)^2 / D + eps)
//
// The statistics are results (f32, or f64 for f64) so that the gradient need not take them again;
// gamma, beta and their gradients have the same type.
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/ops/norm/norm.h"

namespace trireme {
namespace ops {
extern const OpDef layer_norm_grad;
}  // namespace ops

namespace layer_norm_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  check_norm("layer_norm", x, args.attrs.as<NormAttrs>().eps);
  require(args.in[1] == line_type(x) && args.in[2] == line_type(x),
          "layer_norm: gamma and beta must be {}, for the last dimension of x (x {}, gamma {}, beta {})",
          said(line_type(x)), said(x), said(args.in[1]), said(args.in[2]));
  return {x, statistic_of_lines(x), statistic_of_lines(x)};
}

std::vector<TensorType> grad_infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  require(is_floating(x.dtype) && x.shape.rank() >= 1 && args.in[1] == line_type(x) &&
              args.in[2] == statistic_of_lines(x) && args.in[3] == statistic_of_lines(x) && args.in[4] == x,
          "layer_norm_grad: operands do not belong together (x {}, gamma {}, mean {}, rstd {}, dy {})", said(x),
          said(args.in[1]), said(args.in[2]), said(args.in[3]), said(args.in[4]));
  return {x, args.in[1], args.in[1]};
}

// The statistics may be differentiated too: dmean/dx = 1/D.
std::vector<Tensor> grad(const GradArgs& args) {
  const Tensor& x = args.in[0];
  const Tensor& mean = args.out[1];
  const Tensor& rstd = args.out[2];
  std::vector<Tensor> d(3);
  if (args.dout[0]) d = apply(ops::layer_norm_grad, {x, args.in[1], mean, rstd, args.dout[0]});
  const auto add_to_dx = [&](const Tensor& term) { d[0] = d[0] ? add(d[0], term) : term; };
  if (args.dout[1]) add_to_dx(along_lines(scale(args.dout[1], 1 / static_cast<double>(x.size(-1))), x));
  if (args.dout[2]) add_to_dx(through_rstd(args.dout[2], rstd, sub(x, along_lines(mean, x))));
  return d;
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*d!,d!,d!->*d!,*,*", args.in, args.out);
}

// gamma and beta serve all lines: cutting those leaves their gradients partial.
ShardingRule grad_shard(const TypeArgs& args) {
  return parse_rule("*d!,d!,*,*,*d!->*d!,d!,d!", args.in, args.out, {.linear = {{4}}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 8.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

Cost grad_cost(const TypeArgs& args) {
  return {.flops = 14.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

template <class T, class S>
void forward(const KernelArgs& args) {
  const auto x = args.in[0].as<T>();
  const auto gamma = args.in[1].as<S>();
  const auto beta = args.in[2].as<S>();
  const auto y = args.out[0].as<T>();
  const auto means = args.out[1].as<S>();
  const auto rstds = args.out[2].as<S>();
  const double eps = args.attrs.as<NormAttrs>().eps;
  const size_t size = gamma.size();
  for (size_t line = 0; line < means.size(); ++line) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < size; ++i) mean += load(x[line * size + i]);
    mean /= static_cast<double>(size);
    for (size_t i = 0; i < size; ++i) variance += std::pow(load(x[line * size + i]) - mean, 2);
    variance /= static_cast<double>(size);
    const double rstd = 1 / std::sqrt(variance + eps);
    for (size_t i = 0; i < size; ++i) {
      y[line * size + i] = store<T>((load(x[line * size + i]) - mean) * rstd * load(gamma[i]) + load(beta[i]));
    }
    means[line] = static_cast<S>(mean);
    rstds[line] = static_cast<S>(rstd);
  }
}

// With n = (x - mean) rstd and g = gamma dy: dx = rstd (g - mean_d g - n mean_d (g n)), dgamma =
// sum_* dy n, dbeta = sum_* dy.
template <class T, class S>
void backward(const KernelArgs& args) {
  const auto x = args.in[0].as<T>();
  const auto gamma = args.in[1].as<S>();
  const auto means = args.in[2].as<S>();
  const auto rstds = args.in[3].as<S>();
  const auto dy = args.in[4].as<T>();
  const size_t size = gamma.size();
  std::vector<double> dgamma(size), dbeta(size);
  for (size_t line = 0; line < means.size(); ++line) {
    const double mean = load(means[line]);
    const double rstd = load(rstds[line]);
    double sum_g = 0, sum_gn = 0;
    for (size_t i = 0; i < size; ++i) {
      const double d = load(dy[line * size + i]);
      const double n = (load(x[line * size + i]) - mean) * rstd;
      dgamma[i] += d * n;
      dbeta[i] += d;
      sum_g += d * load(gamma[i]);
      sum_gn += d * load(gamma[i]) * n;
    }
    for (size_t i = 0; i < size; ++i) {
      const double n = (load(x[line * size + i]) - mean) * rstd;
      const double g = load(dy[line * size + i]) * load(gamma[i]);
      args.out[0].as<T>()[line * size + i] = store<T>(rstd * (g - (sum_g + n * sum_gn) / static_cast<double>(size)));
    }
  }
  for (size_t i = 0; i < size; ++i) {
    args.out[1].as<S>()[i] = store<S>(dgamma[i]);
    args.out[2].as<S>()[i] = store<S>(dbeta[i]);
  }
}

void kernel(const KernelArgs& args) {
  with_floating("layer_norm", args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward<T, Statistic<T>>(args);
  });
}

void grad_kernel(const KernelArgs& args) {
  with_floating("layer_norm_grad", args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    backward<T, Statistic<T>>(args);
  });
}

std::vector<Example> examples() {
  return {{.in = {f32({6, 12}), f32({12}), f32({12})}, .attrs = Attrs::of(NormAttrs{})},
          {.in = {f32({2, 6, 5}), f32({5}), f32({5})}, .attrs = Attrs::of(NormAttrs{1e-3})}};
}

std::vector<Example> grad_examples() {
  return {{.in = {f32({6, 12}), f32({12}), f32({6}), f32({6}), f32({6, 12})}},
          {.in = {f32({2, 6, 5}), f32({5}), f32({2, 6}), f32({2, 6}), f32({2, 6, 5})}}};
}

}  // namespace layer_norm_op

namespace ops {
extern const OpDef layer_norm{
    {"layer_norm", &Attrs::parse<NormAttrs>},
    {
        .doc = "y[*,d] = gamma[d] (x[*,d] - mean[*]) rstd[*] + beta[d]",
        .inputs = "x, gamma, beta",
        .infer = layer_norm_op::infer,
        .grad = layer_norm_op::grad,
        .shard = layer_norm_op::shard,
        .cost = layer_norm_op::cost,
        .kernel = layer_norm_op::kernel,
        .may_overwrite = {{0, 0}},
        .examples = layer_norm_op::examples,
    },
};
extern const OpDef layer_norm_grad{
    {"layer_norm_grad", &Attrs::parse<NoAttrs>},
    {
        .doc = "dx, dgamma and dbeta of layer_norm, from its statistics",
        .inputs = "x, gamma, mean, rstd, dy",
        .infer = layer_norm_op::grad_infer,
        .grad = Facet<GradFn>::none("a gradient is not differentiated again"),
        .shard = layer_norm_op::grad_shard,
        .cost = layer_norm_op::grad_cost,
        .kernel = layer_norm_op::grad_kernel,
        .may_overwrite = {{0, 4}, {0, 0}},
        .examples = layer_norm_op::grad_examples,
    },
};
}  // namespace ops

Normalised layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const DType type = statistic_type(x.dtype());
  const std::vector<Tensor> out =
      apply(ops::layer_norm, {x, cast(gamma, type), cast(beta, type)}, Attrs::of(NormAttrs{eps}));
  return {out[0], out[1], out[2]};
}

}  // namespace trireme
