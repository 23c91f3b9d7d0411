// rotary: y[b,s,h,i] = x[b,s,h,i] cos a - x[b,s,h,i+d/2] sin a
//         y[b,s,h,i+d/2] = x[b,s,h,i+d/2] cos a + x[b,s,h,i] sin a, with a = s theta^(-2i/d), i <
//         d/2
//
// Each head's pair (i, i+d/2) turns by an angle that grows with the position, so that the product
// of a query and a key depends on their distance (RoFormer, Su et al., 2021; the two halves as in
// Hugging Face's Llama). Positions are those of the whole tensor, so that every cut gives the same
// result. The gradient turns back: `inverse` negates the angle. rotary_at counts positions from an operand on: those of
// the next tokens of a sequence.
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef rotary;
extern const OpDef rotary_at;
}  // namespace ops

namespace rotary_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  const double theta = args.attrs.as<RotaryAttrs>().theta;
  require(is_floating(x.dtype) && x.shape.rank() == 4, "rotary: x must be floating [b,s,h,d] (x {})", said(x));
  require(x.shape[3] % 2 == 0, "rotary: the head size is {}; it must be even (x {})", x.shape[3], said(x));
  require(theta > 0 && std::isfinite(theta), "rotary: theta is {}; it must be above 0", theta);
  return {x};
}

std::vector<TensorType> infer_at(const InferArgs& args) {
  const TensorType& at = args.in[1];
  require(is_index(at.dtype) && at.shape.rank() == 0, "rotary_at: at must be one number, i32 or i64 (at {})", said(at));
  return infer(args);
}

Attrs turned_back(const Attrs& attrs) {
  auto back = attrs.as<RotaryAttrs>();
  back.inverse = !back.inverse;
  return Attrs::of(back);
}

std::vector<Tensor> grad(const GradArgs& args) {
  return {apply1(ops::rotary, {args.dout[0]}, turned_back(args.attrs))};
}

std::vector<Tensor> grad_at(const GradArgs& args) {
  return {apply1(ops::rotary_at, {args.dout[0], args.in[1]}, turned_back(args.attrs)), {}};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("bshd!->bshd!", args.in, args.out, {.linear = {{0}}});
}

ShardingRule shard_at(const TypeArgs& args) {
  return parse_rule("bshd!,->bshd!", args.in, args.out, {.linear = {{0}}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 3.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

template <class T>
void rotate(const KernelArgs& args, int64_t at) {
  const auto& attrs = args.attrs.as<RotaryAttrs>();
  const Shape& shape = args.in[0].type.shape;
  const auto x = args.in[0].as<T>();
  const auto y = args.out[0].as<T>();
  const auto d = static_cast<size_t>(shape[3]);
  for (size_t head = 0; head < x.size(); head += d) {
    const int64_t row = static_cast<int64_t>(head / d) / shape[2];
    const auto position = static_cast<double>(at + args.in_start(0, 1) + row % shape[1]);
    for (size_t i = 0; i < d / 2; ++i) {
      const double angle = position * std::pow(attrs.theta, -2 * static_cast<double>(i) / static_cast<double>(d));
      const double cos = std::cos(angle);
      const double sin = attrs.inverse ? -std::sin(angle) : std::sin(angle);
      const double first = load(x[head + i]);
      const double second = load(x[head + i + d / 2]);
      y[head + i] = store<T>(first * cos - second * sin);
      y[head + i + d / 2] = store<T>(second * cos + first * sin);
    }
  }
}

void kernel(const KernelArgs& args) {
  with_floating("rotary", args.in[0].type.dtype, [&](auto zero) { rotate<decltype(zero)>(args, 0); });
}

void kernel_at(const KernelArgs& args) {
  int64_t at = 0;
  with_index("rotary_at", args.in[1].type.dtype, [&]<class I>(I) { at = static_cast<int64_t>(args.in[1].as<I>()[0]); });
  with_floating("rotary_at", args.in[0].type.dtype, [&](auto zero) { rotate<decltype(zero)>(args, at); });
}

std::vector<Example> examples() {
  return {{.in = {f32({2, 6, 6, 4})}, .attrs = Attrs::of(RotaryAttrs{})},
          {.in = {f32({6, 3, 2, 2})}, .attrs = Attrs::of(RotaryAttrs{.theta = 100, .inverse = true})},
          {.in = {f32({1, 12, 1, 6})}, .attrs = Attrs::of(RotaryAttrs{.theta = 500000})}};
}

std::vector<Example> examples_at() {
  return {{.in = {f32({2, 3, 6, 4}), i32({})}, .attrs = Attrs::of(RotaryAttrs{}), .fill = {{}, integers(0, 9)}},
          {.in = {f32({1, 1, 2, 6}), i64({})},
           .attrs = Attrs::of(RotaryAttrs{.theta = 100, .inverse = true}),
           .fill = {{}, integers(0, 9)}}};
}

}  // namespace rotary_op

namespace ops {
extern const OpDef rotary{
    {"rotary", &Attrs::parse<RotaryAttrs>},
    {
        .doc = "y = x with the pairs (i, i+d/2) of each head turned by s theta^(-2i/d)",
        .inputs = "x",
        .infer = rotary_op::infer,
        .grad = rotary_op::grad,
        .shard = rotary_op::shard,
        .cost = rotary_op::cost,
        .kernel = rotary_op::kernel,
        .traits = {.reads_place = true},
        .may_overwrite = {{0, 0}},
        .examples = rotary_op::examples,
    },
};
extern const OpDef rotary_at{
    {"rotary_at", &Attrs::parse<RotaryAttrs>},
    {
        .doc = "y = x with the pairs (i, i+d/2) of each head turned by (at + s) theta^(-2i/d)",
        .inputs = "x, at",
        .infer = rotary_op::infer_at,
        .grad = rotary_op::grad_at,
        .shard = rotary_op::shard_at,
        .cost = rotary_op::cost,
        .kernel = rotary_op::kernel_at,
        .traits = {.reads_place = true},
        .may_overwrite = {{0, 0}},
        .examples = rotary_op::examples_at,
    },
};
}  // namespace ops

Tensor rotary(const Tensor& x, double theta) {
  return apply1(ops::rotary, {x}, Attrs::of(RotaryAttrs{.theta = theta}));
}

Tensor rotary_at(const Tensor& x, const Tensor& at, double theta) {
  return apply1(ops::rotary_at, {x, at}, Attrs::of(RotaryAttrs{.theta = theta}));
}

}  // namespace trireme
