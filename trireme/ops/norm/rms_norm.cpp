// rms_norm: y[*,d] = gamma[d] x[*,d] rstd[*], with rstd[*] = 1 / sqrt(sum_d x[*,d]^2 / D + eps)
//
// rstd, gamma and its gradient are f32, or f64 for f64.
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/ops/norm/norm.h"

namespace trireme {
namespace ops {
extern const OpDef rms_norm_grad;
}  // namespace ops

namespace rms_norm_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  check_norm("rms_norm", x, args.attrs.as<NormAttrs>().eps);
  require(args.in[1] == line_type(x), "rms_norm: gamma must be {}, for the last dimension of x (x {}, gamma {})",
          said(line_type(x)), said(x), said(args.in[1]));
  return {x, statistic_of_lines(x)};
}

std::vector<TensorType> grad_infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  require(is_floating(x.dtype) && x.shape.rank() >= 1 && args.in[1] == line_type(x) &&
              args.in[2] == statistic_of_lines(x) && args.in[3] == x,
          "rms_norm_grad: operands do not belong together (x {}, gamma {}, rstd {}, dy {})", said(x), said(args.in[1]),
          said(args.in[2]), said(args.in[3]));
  return {x, args.in[1]};
}

// rstd may be differentiated too.
std::vector<Tensor> grad(const GradArgs& args) {
  const Tensor& x = args.in[0];
  const Tensor& rstd = args.out[1];
  std::vector<Tensor> d(2);
  if (args.dout[0]) d = apply(ops::rms_norm_grad, {x, args.in[1], rstd, args.dout[0]});
  if (args.dout[1]) {
    const Tensor term = through_rstd(args.dout[1], rstd, x);
    d[0] = d[0] ? add(d[0], term) : term;
  }
  return d;
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*d!,d!->*d!,*", args.in, args.out);
}

ShardingRule grad_shard(const TypeArgs& args) {
  return parse_rule("*d!,d!,*,*d!->*d!,d!", args.in, args.out, {.linear = {{3}}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 4.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

Cost grad_cost(const TypeArgs& args) {
  return {.flops = 10.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

template <class T, class S>
void forward(const KernelArgs& args) {
  const auto x = args.in[0].as<T>();
  const auto gamma = args.in[1].as<S>();
  const auto y = args.out[0].as<T>();
  const auto rstds = args.out[1].as<S>();
  const double eps = args.attrs.as<NormAttrs>().eps;
  const size_t size = gamma.size();
  for (size_t line = 0; line < rstds.size(); ++line) {
    double squares = 0;
    for (size_t i = 0; i < size; ++i) squares += std::pow(load(x[line * size + i]), 2);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(size) + eps);
    for (size_t i = 0; i < size; ++i) {
      y[line * size + i] = store<T>(load(x[line * size + i]) * rstd * load(gamma[i]));
    }
    rstds[line] = static_cast<S>(rstd);
  }
}

// With n = x rstd and g = gamma dy: dx = rstd (g - n mean_d (g n)), dgamma = sum_* dy n.
template <class T, class S>
void backward(const KernelArgs& args) {
  const auto x = args.in[0].as<T>();
  const auto gamma = args.in[1].as<S>();
  const auto rstds = args.in[2].as<S>();
  const auto dy = args.in[3].as<T>();
  const size_t size = gamma.size();
  std::vector<double> dgamma(size);
  for (size_t line = 0; line < rstds.size(); ++line) {
    const double rstd = load(rstds[line]);
    double sum_gn = 0;
    for (size_t i = 0; i < size; ++i) {
      const double n = load(x[line * size + i]) * rstd;
      dgamma[i] += load(dy[line * size + i]) * n;
      sum_gn += load(dy[line * size + i]) * load(gamma[i]) * n;
    }
    for (size_t i = 0; i < size; ++i) {
      const double n = load(x[line * size + i]) * rstd;
      const double g = load(dy[line * size + i]) * load(gamma[i]);
      args.out[0].as<T>()[line * size + i] = store<T>(rstd * (g - n * sum_gn / static_cast<double>(size)));
    }
  }
  for (size_t i = 0; i < size; ++i) args.out[1].as<S>()[i] = store<S>(dgamma[i]);
}

void kernel(const KernelArgs& args) {
  with_floating("rms_norm", args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward<T, Statistic<T>>(args);
  });
}

void grad_kernel(const KernelArgs& args) {
  with_floating("rms_norm_grad", args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    backward<T, Statistic<T>>(args);
  });
}

std::vector<Example> examples() {
  return {{.in = {f32({6, 12}), f32({12})}, .attrs = Attrs::of(NormAttrs{})},
          {.in = {f32({2, 6, 5}), f32({5})}, .attrs = Attrs::of(NormAttrs{1e-3})}};
}

std::vector<Example> grad_examples() {
  return {{.in = {f32({6, 12}), f32({12}), f32({6}), f32({6, 12})}},
          {.in = {f32({2, 6, 5}), f32({5}), f32({2, 6}), f32({2, 6, 5})}}};
}

}  // namespace rms_norm_op

namespace ops {
extern const OpDef rms_norm{
    {"rms_norm", &Attrs::parse<NormAttrs>},
    {
        .doc = "y[*,d] = gamma[d] x[*,d] rstd[*]",
        .inputs = "x, gamma",
        .infer = rms_norm_op::infer,
        .grad = rms_norm_op::grad,
        .shard = rms_norm_op::shard,
        .cost = rms_norm_op::cost,
        .kernel = rms_norm_op::kernel,
        .may_overwrite = {{0, 0}},
        .examples = rms_norm_op::examples,
    },
};
extern const OpDef rms_norm_grad{
    {"rms_norm_grad", &Attrs::parse<NoAttrs>},
    {
        .doc = "dx and dgamma of rms_norm, from its rstd",
        .inputs = "x, gamma, rstd, dy",
        .infer = rms_norm_op::grad_infer,
        .grad = Facet<GradFn>::none("a gradient is not differentiated again"),
        .shard = rms_norm_op::grad_shard,
        .cost = rms_norm_op::grad_cost,
        .kernel = rms_norm_op::grad_kernel,
        .may_overwrite = {{0, 3}, {0, 0}},
        .examples = rms_norm_op::grad_examples,
    },
};
}  // namespace ops

Normalised rms_norm(const Tensor& x, const Tensor& gamma, double eps) {
  const std::vector<Tensor> out =
      apply(ops::rms_norm, {x, cast(gamma, statistic_type(x.dtype()))}, Attrs::of(NormAttrs{eps}));
  return {out[0], {}, out[1]};
}

}  // namespace trireme
