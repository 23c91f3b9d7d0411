// adam_update: a step of Adam or AdamW (adam.h).
#include "trireme/ops/ops.h"
#include "trireme/ops/update/adam.h"

namespace trireme {
namespace adam_update_op {

constexpr std::string_view kOperands = "param, grad, m, v, lr, step, scale";

std::vector<TensorType> infer(const InferArgs& args) {
  check_update("adam_update", kOperands, args.in, 4);
  check_adam("adam_update", args.attrs.as<AdamAttrs>());
  return {args.in[0], args.in[2], args.in[3]};
}

Cost cost(const TypeArgs& args) {
  return update_cost(args, 14);
}

template <class T>
void update(const KernelArgs& args) {
  const AdamFormula adam("adam_update", args);
  const auto p = args.in[0].as<T>();
  const auto grad = args.in[1].as<T>();
  const auto m = args.in[2].as<T>();
  const auto v = args.in[3].as<T>();
  for (size_t i = 0; i < p.size(); ++i) {
    const AdamFormula::Next next = adam.next(load(p[i]), load(grad[i]), load(m[i]), load(v[i]));
    args.out[0].as<T>()[i] = store<T>(next.param);
    args.out[1].as<T>()[i] = store<T>(next.m);
    args.out[2].as<T>()[i] = store<T>(next.v);
  }
}

void kernel(const KernelArgs& args) {
  with_floating("adam_update", args.out[0].type.dtype, [&](auto zero) { update<decltype(zero)>(args); });
}

std::vector<Example> examples() {
  const auto example = [](std::initializer_list<int64_t> shape, AdamAttrs attrs) {
    return Example{.in = {f32(shape), f32(shape), f32(shape), f32(shape), f32({}), i64({}), f32({})},
                   .attrs = Attrs::of(attrs),
                   .fill = {{}, {}, {}, uniform(0.1, 1), uniform(0.01, 0.1), integers(1, 10), uniform(0.5, 1)}};
  };
  return {example({6, 12}, {.weight_decay = 0.01}), example({5}, {.weight_decay = 0.1, .decoupled = false}),
          example({}, {})};
}

}  // namespace adam_update_op

namespace ops {
extern const OpDef adam_update{
    {"adam_update", &Attrs::parse<AdamAttrs>},
    {
        .doc = "m' = b1 m + (1-b1) g; v' = b2 v + (1-b2) g^2; p' = p - lr m^ / (sqrt(v^) + eps)",
        .inputs = adam_update_op::kOperands,
        .infer = adam_update_op::infer,
        .grad = Facet<GradFn>::none(kUpdateIsLast),
        .shard = update_rule,
        .cost = adam_update_op::cost,
        .kernel = adam_update_op::kernel,
        .may_overwrite = {{0, 0}, {1, 2}, {2, 3}},
        .examples = adam_update_op::examples,
    },
};
}  // namespace ops

AdamUpdate adam_update(const AdamOperands& in, const AdamOptions& options) {
  const std::vector<Tensor> out =
      apply(ops::adam_update, {in.param, in.grad, in.m, in.v, in.lr, in.step, in.scale},
            Attrs::of(AdamAttrs{options.beta1, options.beta2, options.eps, options.weight_decay, options.decoupled}));
  return {out[0], out[1], out[2]};
}

}  // namespace trireme
