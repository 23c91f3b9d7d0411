// lazy_adam_update: adam_update of the rows of a table that the batch has looked up; the others, and their means, stay.
//   count[r] = how often row r was looked up
//
// The means of a row are therefore of the steps that looked it up, and corrected by the number of all steps: LazyAdam
// of TensorFlow Addons and of MindSpore.
#include <algorithm>
#include <cmath>

#include "trireme/ops/ops.h"
#include "trireme/ops/update/update.h"

namespace trireme {
namespace lazy_adam_update_op {

constexpr std::string_view kOperands = "param, grad, m, v, lr, step, scale, count";

std::vector<TensorType> infer(const InferArgs& args) {
  check_update("lazy_adam_update", kOperands, args.in.first(7), 4);
  check_adam("lazy_adam_update", args.attrs.as<AdamAttrs>());
  const TensorType& param = args.in[0];
  require(param.shape.rank() == 2 && is_floating(args.in[7].dtype) && args.in[7].shape == Shape{param.shape[0], 1},
          "lazy_adam_update: count is {} and param is {}; they must be floating, [rows, 1] and [rows, width]",
          to_string(args.in[7]), to_string(param));
  return {args.in[0], args.in[2], args.in[3]};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("vd,vd,vd,vd,,,,v.->vd,vd,vd", args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  return update_cost(args, 14);
}

std::vector<int> keeps(const Attrs&) {
  return {7};
}

template <class T>
void update(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<AdamAttrs>();
  const auto p = args.in[0].as<T>();
  const auto grad = args.in[1].as<T>();
  const auto m = args.in[2].as<T>();
  const auto v = args.in[3].as<T>();
  const double lr = scalar("lazy_adam_update", args.in[4]);
  const auto step = static_cast<double>(args.in[5].as<int64_t>()[0]);
  const double scale = scalar("lazy_adam_update", args.in[6]);
  const double correction1 = 1 - std::pow(attrs.beta1, step);
  const double correction2 = 1 - std::pow(attrs.beta2, step);
  const double decay = attrs.decoupled ? 1 - lr * attrs.weight_decay : 1;
  const double l2 = attrs.decoupled ? 0 : attrs.weight_decay;
  const auto width = static_cast<size_t>(args.in[0].type.shape[1]);
  std::vector<double> counts;
  with_floating("lazy_adam_update", args.in[7].type.dtype, [&](auto zero) {
    for (const auto count : args.in[7].as<decltype(zero)>()) counts.push_back(load(count));
  });
  for (size_t i = 0; i < p.size(); ++i) {
    const bool is_looked_up = counts[i / width] > 0;
    const double param = load(p[i]);
    const double g = scale * load(grad[i]) + l2 * param;
    const double m1 = attrs.beta1 * load(m[i]) + (1 - attrs.beta1) * g;
    const double v1 = attrs.beta2 * load(v[i]) + (1 - attrs.beta2) * g * g;
    const double direction = m1 / correction1 / (std::sqrt(v1 / correction2) + attrs.eps);
    const T p_next = is_looked_up ? store<T>(decay * param - lr * direction) : p[i];
    const T m_next = is_looked_up ? store<T>(m1) : m[i];
    const T v_next = is_looked_up ? store<T>(v1) : v[i];
    args.out[0].as<T>()[i] = p_next;
    args.out[1].as<T>()[i] = m_next;
    args.out[2].as<T>()[i] = v_next;
  }
}

void kernel(const KernelArgs& args) {
  with_floating("lazy_adam_update", args.out[0].type.dtype, [&](auto zero) { update<decltype(zero)>(args); });
}

std::vector<Example> examples() {
  const auto example = [](std::initializer_list<int64_t> shape, std::initializer_list<int64_t> rows, AdamAttrs attrs) {
    return Example{
        .in = {f32(shape), f32(shape), f32(shape), f32(shape), f32({}), i64({}), f32({}), f32(rows)},
        .attrs = Attrs::of(attrs),
        .fill = {{}, {}, {}, uniform(0.1, 1), uniform(0.01, 0.1), integers(1, 10), uniform(0.5, 1), integers(0, 3)}};
  };
  return {example({6, 12}, {6, 1}, {.weight_decay = 0.01, .decoupled = false}), example({12, 2}, {12, 1}, {})};
}

}  // namespace lazy_adam_update_op

namespace ops {
extern const OpDef lazy_adam_update{
    {"lazy_adam_update", &Attrs::parse<AdamAttrs>},
    {
        .doc = "adam_update of the rows with count > 0; the others stay",
        .inputs = lazy_adam_update_op::kOperands,
        .infer = lazy_adam_update_op::infer,
        .grad = Facet<GradFn>::none(kUpdateIsLast),
        .shard = lazy_adam_update_op::shard,
        .cost = lazy_adam_update_op::cost,
        .kernel = lazy_adam_update_op::kernel,
        .may_overwrite = {{0, 0}, {1, 2}, {2, 3}},
        .examples = lazy_adam_update_op::examples,
        .keeps_where_zero = lazy_adam_update_op::keeps,
    },
};
}  // namespace ops

AdamUpdate lazy_adam_update(const AdamOperands& in, const Tensor& count, const AdamOptions& options) {
  const std::vector<Tensor> out =
      apply(ops::lazy_adam_update, {in.param, in.grad, in.m, in.v, in.lr, in.step, in.scale, count},
            Attrs::of(AdamAttrs{options.beta1, options.beta2, options.eps, options.weight_decay, options.decoupled}));
  return {out[0], out[1], out[2]};
}

}  // namespace trireme
