// sgd_update: g = scale grad + weight_decay p; u' = momentum u + (1-dampening) g, but u' = g in
// step 1;
//             p' = p - lr (g + momentum u' with nesterov, else u')
// sgd_plain_update: p' = p - lr (scale grad + weight_decay p)
//
// PyTorch's torch.optim.SGD; the velocity u starts as anything, step 1 does not read its value.
#include "trireme/op/op_attrs.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/update/update.h"

namespace trireme {
namespace sgd_update_op {

constexpr std::string_view kOperands = "param, grad, velocity, lr, step, scale";
constexpr std::string_view kPlainOperands = "param, grad, lr, scale";

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<SgdAttrs>();
  check_update("sgd_update", kOperands, args.in, 3);
  require(attrs.momentum >= 0 && attrs.weight_decay >= 0,
          "sgd_update: momentum is {} and weight_decay is {}; neither may be negative", attrs.momentum,
          attrs.weight_decay);
  require(!attrs.nesterov || (attrs.momentum > 0 && attrs.dampening == 0),
          "sgd_update: nesterov needs momentum above 0 and dampening 0; they are {} and {}", attrs.momentum,
          attrs.dampening);
  return {args.in[0], args.in[2]};
}

std::vector<TensorType> plain_infer(const InferArgs& args) {
  const double weight_decay = args.attrs.as<SgdPlainAttrs>().weight_decay;
  check_update("sgd_plain_update", kPlainOperands, args.in, 2);
  require(weight_decay >= 0, "sgd_plain_update: weight_decay is {}; it may not be negative", weight_decay);
  return {args.in[0]};
}

// Without decay a step along a gradient of zero is none.
std::vector<int> plain_keeps(const Attrs& attrs) {
  return attrs.as<SgdPlainAttrs>().weight_decay == 0 ? std::vector<int>{1} : std::vector<int>();
}

Cost cost(const TypeArgs& args) {
  return update_cost(args, 8);
}
Cost plain_cost(const TypeArgs& args) {
  return update_cost(args, 5);
}

template <class T>
void update(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<SgdAttrs>();
  const auto p = args.in[0].as<T>();
  const auto grad = args.in[1].as<T>();
  const auto velocity = args.in[2].as<T>();
  const double lr = scalar("sgd_update", args.in[3]);
  const bool first = args.in[4].as<int64_t>()[0] == 1;
  const double scale = scalar("sgd_update", args.in[5]);
  for (size_t i = 0; i < p.size(); ++i) {
    const double param = load(p[i]);
    const double g = scale * load(grad[i]) + attrs.weight_decay * param;
    const double u = first ? g : attrs.momentum * load(velocity[i]) + (1 - attrs.dampening) * g;
    args.out[0].as<T>()[i] = store<T>(param - lr * (attrs.nesterov ? g + attrs.momentum * u : u));
    args.out[1].as<T>()[i] = store<T>(u);
  }
}

void kernel(const KernelArgs& args) {
  with_floating("sgd_update", args.out[0].type.dtype, [&](auto zero) { update<decltype(zero)>(args); });
}

template <class T>
void plain_update(const KernelArgs& args) {
  const double weight_decay = args.attrs.as<SgdPlainAttrs>().weight_decay;
  const auto p = args.in[0].as<T>();
  const auto grad = args.in[1].as<T>();
  const double lr = scalar("sgd_plain_update", args.in[2]);
  const double scale = scalar("sgd_plain_update", args.in[3]);
  for (size_t i = 0; i < p.size(); ++i) {
    const double param = load(p[i]);
    args.out[0].as<T>()[i] = store<T>(param - lr * (scale * load(grad[i]) + weight_decay * param));
  }
}

void plain_kernel(const KernelArgs& args) {
  with_floating("sgd_plain_update", args.out[0].type.dtype, [&](auto zero) { plain_update<decltype(zero)>(args); });
}

std::vector<Example> examples() {
  const auto example = [](std::initializer_list<int64_t> shape, SgdAttrs attrs) {
    return Example{.in = {f32(shape), f32(shape), f32(shape), f32({}), i64({}), f32({})},
                   .attrs = Attrs::of(attrs),
                   .fill = {{}, {}, {}, uniform(0.01, 0.1), integers(1, 4), uniform(0.5, 1)}};
  };
  return {example({6, 12}, {.weight_decay = 0.01}), example({5}, {.nesterov = true}),
          example({2, 6}, {.dampening = 0.5}), example({}, {})};
}

std::vector<Example> plain_examples() {
  return {{.in = {f32({6, 12}), f32({6, 12}), f32({}), f32({})}, .attrs = Attrs::of(SgdPlainAttrs{0.01})},
          {.in = {f32({5}), f32({5}), f32({}), f32({})}, .attrs = Attrs::of(SgdPlainAttrs{})}};
}

}  // namespace sgd_update_op

namespace ops {
extern const OpDef sgd_update{
    {"sgd_update", &Attrs::parse<SgdAttrs>},
    {
        .doc = "u' = momentum u + (1-dampening) g; p' = p - lr u'",
        .inputs = sgd_update_op::kOperands,
        .infer = sgd_update_op::infer,
        .grad = Facet<GradFn>::none(kUpdateIsLast),
        .shard = update_rule,
        .cost = sgd_update_op::cost,
        .kernel = sgd_update_op::kernel,
        .may_overwrite = {{0, 0}, {1, 2}},
        .examples = sgd_update_op::examples,
    },
};
extern const OpDef sgd_plain_update{
    {"sgd_plain_update", &Attrs::parse<SgdPlainAttrs>},
    {
        .doc = "p' = p - lr (scale grad + weight_decay p)",
        .inputs = sgd_update_op::kPlainOperands,
        .infer = sgd_update_op::plain_infer,
        .grad = Facet<GradFn>::none(kUpdateIsLast),
        .shard = update_rule,
        .cost = sgd_update_op::plain_cost,
        .kernel = sgd_update_op::plain_kernel,
        .may_overwrite = {{0, 0}},
        .examples = sgd_update_op::plain_examples,
        .keeps_where_zero = sgd_update_op::plain_keeps,
    },
};
}  // namespace ops

SgdUpdate sgd_update(const SgdOperands& in, const SgdOptions& options) {
  const std::vector<Tensor> out =
      apply(ops::sgd_update, {in.param, in.grad, in.velocity, in.lr, in.step, in.scale},
            Attrs::of(SgdAttrs{options.momentum, options.weight_decay, options.nesterov, options.dampening}));
  return {out[0], out[1]};
}

Tensor sgd_plain_update(const Tensor& param, const Tensor& grad, const Tensor& lr, const Tensor& scale,
                        double weight_decay) {
  return apply1(ops::sgd_plain_update, {param, grad, lr, scale}, Attrs::of(SgdPlainAttrs{weight_decay}));
}

}  // namespace trireme
