// lazy_adam_update: adam_update of the rows of a table that the batch has looked up; the others, and their means, stay.
//   count[r] = how often row r was looked up
//
// The means of a row are therefore of the steps that looked it up, and corrected by the number of all steps: LazyAdam
// of TensorFlow Addons and of MindSpore.
#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/update/adam.h"

namespace trireme {
namespace lazy_adam_update_op {

constexpr std::string_view kOperands = "param, grad, m, v, lr, step, scale, count";

std::vector<TensorType> infer(const InferArgs& args) {
  check_update("lazy_adam_update", kOperands, args.in.first(7), 4);
  check_adam("lazy_adam_update", args.attrs.as<AdamAttrs>());
  const TensorType& param = args.in[0];
  require(param.shape.rank() == 2 && is_floating(args.in[7].dtype) && args.in[7].shape == Shape{param.shape[0], 1},
          "lazy_adam_update: count is {} and param is {}; they must be floating, [rows, 1] and [rows, width]",
          said(args.in[7]), said(param));
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

// How often each row was looked up.
std::vector<double> counts_of(const View& counts) {
  std::vector<double> out;
  with_floating("lazy_adam_update", counts.type.dtype, [&](auto zero) {
    for (const auto count : counts.as<decltype(zero)>()) out.push_back(load(count));
  });
  return out;
}

template <class T>
void update(const KernelArgs& args) {
  const AdamFormula adam("lazy_adam_update", args);
  const auto p = args.in[0].as<T>();
  const auto grad = args.in[1].as<T>();
  const auto m = args.in[2].as<T>();
  const auto v = args.in[3].as<T>();
  const auto width = static_cast<size_t>(args.in[0].type.shape[1]);
  const std::vector<double> counts = counts_of(args.in[7]);
  for (size_t i = 0; i < p.size(); ++i) {
    const bool stays = !(counts[i / width] > 0);
    const AdamFormula::Next next = adam.next(load(p[i]), load(grad[i]), load(m[i]), load(v[i]));
    const T param = stays ? p[i] : store<T>(next.param), m1 = stays ? m[i] : store<T>(next.m),
            v1 = stays ? v[i] : store<T>(next.v);
    args.out[0].as<T>()[i] = param;  // which may be over the operands
    args.out[1].as<T>()[i] = m1;
    args.out[2].as<T>()[i] = v1;
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
