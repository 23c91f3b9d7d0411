// clip_scale: s = min(1, max_norm / (sqrt(norm2) + 1e-6))
//
// The factor that limits the norm of all gradients together, from the sum of their squares, as
// torch.nn.utils.clip_grad_norm_ does. The updates take it as `scale`, so clipping costs no pass
// over the gradients.
#include <algorithm>
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/update/update.h"

namespace trireme {
namespace clip_scale_op {

struct ClipAttrs {
  double max_norm = 1;
  static constexpr auto fields() { return std::tuple{field("max_norm", &ClipAttrs::max_norm)}; }
};

std::vector<TensorType> infer(const InferArgs& args) {
  const double max_norm = args.attrs.as<ClipAttrs>().max_norm;
  require(is_floating(args.in[0].dtype) && args.in[0].shape.rank() == 0,
          "clip_scale: norm_squared is {}; it must be a floating scalar", said(args.in[0]));
  require(max_norm > 0, "clip_scale: max_norm is {}; it must be above 0", max_norm);
  return {args.in[0]};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("->", args.in, args.out);
}
Cost cost(const TypeArgs& args) {
  return {.flops = 4, .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  with_floating("clip_scale", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const double norm = std::sqrt(scalar("clip_scale", args.in[0]));
    args.out[0].as<T>()[0] = store<T>(std::min(1.0, args.attrs.as<ClipAttrs>().max_norm / (norm + 1e-6)));
  });
}

std::vector<Example> examples() {
  return {{.in = {f32({})}, .attrs = Attrs::of(ClipAttrs{0.5}), .fill = {uniform(1, 4)}},
          {.in = {f32({})}, .attrs = Attrs::of(ClipAttrs{10}), .fill = {uniform(1, 4)}}};
}

}  // namespace clip_scale_op

namespace ops {
extern const OpDef clip_scale{
    {"clip_scale", &Attrs::parse<clip_scale_op::ClipAttrs>},
    {
        .doc = "s = min(1, max_norm / (sqrt(norm2) + 1e-6))",
        .inputs = "norm_squared",
        .infer = clip_scale_op::infer,
        .grad = Facet<GradFn>::none(kUpdateIsLast),
        .shard = clip_scale_op::shard,
        .cost = clip_scale_op::cost,
        .kernel = clip_scale_op::kernel,
        .may_overwrite = {{0, 0}},
        .examples = clip_scale_op::examples,
    },
};
}  // namespace ops

Tensor clip_scale(const Tensor& norm_squared, double max_norm) {
  return apply1(ops::clip_scale, {norm_squared}, Attrs::of(clip_scale_op::ClipAttrs{max_norm}));
}

}  // namespace trireme
