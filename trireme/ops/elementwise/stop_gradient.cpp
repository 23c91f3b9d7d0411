// stop_gradient: y = x, through which no gradient flows back
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace stop_gradient_op {

std::vector<TensorType> infer(const InferArgs& args) {
  return {args.in[0]};
}

std::vector<Tensor> grad(const GradArgs&) {
  return {Tensor()};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*->*", args.in, args.out, {.linear = {{0}}});
}

Cost cost(const TypeArgs&) {
  return {};
}

void kernel(const KernelArgs& args) {
  const auto from = args.in[0].raw();
  std::copy(from.begin(), from.end(), args.out[0].raw().begin());
}

std::vector<Example> examples() {
  return {{.in = {f32({4, 6})}, .skip_gradient = "it has none by intention"}, {.in = {i32({3})}}};
}

}  // namespace stop_gradient_op

namespace ops {
extern const OpDef stop_gradient{
    {"stop_gradient", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = x, and dx = 0",
        .inputs = "x",
        .infer = stop_gradient_op::infer,
        .grad = stop_gradient_op::grad,
        .shard = stop_gradient_op::shard,
        .cost = stop_gradient_op::cost,
        .kernel = stop_gradient_op::kernel,
        .traits = {.zero_cost_view = true},
        .examples = stop_gradient_op::examples,
    },
};
}  // namespace ops

Tensor stop_gradient(const Tensor& x) {
  return apply1(ops::stop_gradient, {x});
}

}  // namespace trireme
