// lamb_direction: m' and v' as in Adam; u = m^ / (sqrt(v^) + eps) + weight_decay p,
//                 with m^ = m' / (1-b1^t) and v^ = v' / (1-b2^t)
// lamb_apply:     p' = p - lr trust u, trust = sqrt(param_norm2 / direction_norm2), or 1 where either is zero
//
// LAMB (You et al., 2020) scales each tensor's step by norms of the whole tensor. They are
// operands, sums of squares, so that a cut parameter is summed over its pieces first and the ratio
// is exact.
#include <cmath>

#include "trireme/ops/ops.h"
#include "trireme/ops/update/lamb.h"
#include "trireme/ops/update/update.h"

namespace trireme {
namespace ops {
extern const OpDef lamb_direction;
extern const OpDef lamb_apply;
}  // namespace ops

namespace {

constexpr std::string_view kDirectionOperands = "param, grad, m, v, step, scale";
constexpr std::string_view kApplyOperands = "param, direction, param_norm2, direction_norm2, lr";

std::vector<TensorType> direction_infer(const InferArgs& args) {
  check_update("lamb_direction", kDirectionOperands, args.in, 4);
  check_adam("lamb_direction", args.attrs.as<AdamAttrs>());
  return {args.in[0], args.in[2], args.in[3]};
}

std::vector<TensorType> apply_infer(const InferArgs& args) {
  check_update("lamb_apply", kApplyOperands, args.in, 2);
  return {args.in[0]};
}

Cost direction_cost(const TypeArgs& args) {
  return update_cost(args, 14);
}
Cost apply_cost(const TypeArgs& args) {
  return update_cost(args, 2);
}

template <class T>
void direction(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<AdamAttrs>();
  const auto p = args.in[0].as<T>();
  const auto grad = args.in[1].as<T>();
  const auto m = args.in[2].as<T>();
  const auto v = args.in[3].as<T>();
  const auto step = static_cast<double>(args.in[4].as<int64_t>()[0]);
  const double scale = scalar("lamb_direction", args.in[5]);
  const double correction1 = 1 - std::pow(attrs.beta1, step);
  const double correction2 = 1 - std::pow(attrs.beta2, step);
  for (size_t i = 0; i < p.size(); ++i) {
    const double g = scale * load(grad[i]);
    const double m1 = attrs.beta1 * load(m[i]) + (1 - attrs.beta1) * g;
    const double v1 = attrs.beta2 * load(v[i]) + (1 - attrs.beta2) * g * g;
    const double u = m1 / correction1 / (std::sqrt(v1 / correction2) + attrs.eps) + attrs.weight_decay * load(p[i]);
    args.out[0].as<T>()[i] = store<T>(u);
    args.out[1].as<T>()[i] = store<T>(m1);
    args.out[2].as<T>()[i] = store<T>(v1);
  }
}

void direction_kernel(const KernelArgs& args) {
  with_floating("lamb_direction", args.out[0].type.dtype, [&](auto zero) { direction<decltype(zero)>(args); });
}

template <class T>
void step_along(const KernelArgs& args) {
  const auto p = args.in[0].as<T>();
  const auto u = args.in[1].as<T>();
  const double param_norm2 = scalar("lamb_apply", args.in[2]);
  const double direction_norm2 = scalar("lamb_apply", args.in[3]);
  const double lr = scalar("lamb_apply", args.in[4]);
  const double trust = param_norm2 > 0 && direction_norm2 > 0 ? std::sqrt(param_norm2 / direction_norm2) : 1;
  for (size_t i = 0; i < p.size(); ++i) {
    args.out[0].as<T>()[i] = store<T>(load(p[i]) - lr * trust * load(u[i]));
  }
}

void apply_kernel(const KernelArgs& args) {
  with_floating("lamb_apply", args.out[0].type.dtype, [&](auto zero) { step_along<decltype(zero)>(args); });
}

std::vector<Example> direction_examples() {
  const auto example = [](std::initializer_list<int64_t> shape) {
    return Example{.in = {f32(shape), f32(shape), f32(shape), f32(shape), i64({}), f32({})},
                   .attrs = Attrs::of(AdamAttrs{.weight_decay = 0.01}),
                   .fill = {{}, {}, {}, uniform(0.1, 1), integers(1, 10), uniform(0.5, 1)}};
  };
  return {example({6, 12}), example({5}), example({})};
}

std::vector<Example> apply_examples() {
  const auto example = [](std::initializer_list<int64_t> shape) {
    return Example{.in = {f32(shape), f32(shape), f32({}), f32({}), f32({})},
                   .fill = {{}, {}, uniform(0.5, 2), uniform(0.5, 2), uniform(0.01, 0.1)}};
  };
  return {example({6, 12}), example({5})};
}

}  // namespace

namespace ops {
extern const OpDef lamb_direction{
    {"lamb_direction", &Attrs::parse<AdamAttrs>},
    {
        .doc = "u = m^ / (sqrt(v^) + eps) + weight_decay p, with m' and v' as in adam_update",
        .inputs = kDirectionOperands,
        .infer = direction_infer,
        .grad = Facet<GradFn>::none(kUpdateIsLast),
        .shard = update_rule,
        .cost = direction_cost,
        .kernel = direction_kernel,
        .may_overwrite = {{0, 1}, {1, 2}, {2, 3}},
        .examples = direction_examples,
    },
};
extern const OpDef lamb_apply{
    {"lamb_apply", &Attrs::parse<NoAttrs>},
    {
        .doc = "p' = p - lr sqrt(param_norm2 / direction_norm2) u",
        .inputs = kApplyOperands,
        .infer = apply_infer,
        .grad = Facet<GradFn>::none(kUpdateIsLast),
        .shard = update_rule,
        .cost = apply_cost,
        .kernel = apply_kernel,
        .may_overwrite = {{0, 0}, {0, 1}},
        .examples = apply_examples,
    },
};
}  // namespace ops

AdamUpdate lamb_update(const AdamOperands& in, const AdamOptions& options) {
  return lamb_update(in, options, LambNorms{});
}

AdamUpdate lamb_update(const AdamOperands& in, const AdamOptions& o, const LambNorms& norms) {
  const std::vector<Tensor> out = apply(ops::lamb_direction, {in.param, in.grad, in.m, in.v, in.step, in.scale},
                                        Attrs::of(AdamAttrs{o.beta1, o.beta2, o.eps, o.weight_decay, true}));
  const auto squares = [&](const Tensor& x) {
    Tensor own = norms.exact ? exact_square_sum(x) : square_sum(x);
    if (norms.sum_of_pieces) own = norms.sum_of_pieces(own);
    return norms.exact ? total_of_digits(own) : own;
  };
  const Tensor param = apply1(ops::lamb_apply, {in.param, out[0], squares(in.param), squares(out[0]), in.lr});
  return {param, out[1], out[2]};
}

}  // namespace trireme
