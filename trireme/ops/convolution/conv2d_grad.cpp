// conv2d_grad_input: dx[n,p s - top + a d,...,i] = sum over all p, a and o that meet there of
// dy[n,p,q,o] w[o,a,b,i] conv2d_grad_weight: dw[o,a,b,i] = sum_{n,p,q} dy[n,p,q,o] x[n, p s - top +
// a d, q s - left + b d, i]
//
// The shapes of their operands do not determine the size of their result; the attribute `size`
// does. With conv2d they are closed under differentiation. The weight's gradient of bf16 operands is
// f32.
#include <algorithm>

#include "trireme/base/said.h"
#include "trireme/ops/convolution/conv2d.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/most_elements.h"

namespace trireme {
namespace conv2d_grad_op {

using namespace detail;

// [h,w] of the attribute, checked.
std::array<int64_t, 2> size_of(const char* op, const Conv2dAttrs& attrs) {
  require(attrs.size.size() == 2 && attrs.size[0] > 0 && attrs.size[1] > 0 && attrs.groups >= 1,
          "{}: size must be [h,w], each above 0, and groups 1 or more; there are {} values and {} "
          "groups",
          op, attrs.size.size(), attrs.groups);
  return {attrs.size[0], attrs.size[1]};
}

void check_ranks(const char* op, const TensorType& a, const TensorType& dy) {
  require(a.shape.rank() == 4 && dy.shape.rank() == 4 && dy.dtype == a.dtype,
          "{}: operands must have 4 dimensions and one element type ({}, dy {})", op, said(a), said(dy));
}

void check_dy(const char* op, const Conv& conv, const TensorType& dy) {
  require(conv.y == dy, "{}: dy is {} where the convolution gives {} (x {}, weight {})", op, said(dy), said(conv.y),
          said(conv.x), said(conv.w));
}

std::vector<TensorType> input_infer(const InferArgs& args) {
  constexpr const char* kOp = "conv2d_grad_input";
  const auto& attrs = args.attrs.as<Conv2dAttrs>();
  const TensorType& w = args.in[0];
  const TensorType& dy = args.in[1];
  check_ranks(kOp, w, dy);
  const auto [height, width] = size_of(kOp, attrs);
  require(attrs.groups <= kMostElements / std::max<int64_t>(1, w.shape[3]),
          "{}: {} groups of {} channels are more than 2^58 channels", kOp, attrs.groups, w.shape[3]);
  const TensorType x{w.dtype, {dy.shape[0], height, width, w.shape[3] * attrs.groups}};
  check_dy(kOp, conv_of(kOp, x, w, attrs), dy);
  return {x};
}

std::vector<TensorType> weight_infer(const InferArgs& args) {
  constexpr const char* kOp = "conv2d_grad_weight";
  const auto& attrs = args.attrs.as<Conv2dAttrs>();
  const TensorType& x = args.in[0];
  const TensorType& dy = args.in[1];
  check_ranks(kOp, x, dy);
  const auto [height, width] = size_of(kOp, attrs);
  const TensorType w{x.dtype, {dy.shape[3], height, width, x.shape[3] / attrs.groups}};
  check_dy(kOp, conv_of(kOp, x, w, attrs), dy);
  return {{statistic_type(w.dtype), w.shape}};
}

ConvOptions options_of(const Conv2dAttrs& a) {
  return {a.stride, a.padding, a.dilation, a.groups};
}

std::vector<Tensor> input_grad(const GradArgs& args) {
  const auto& attrs = args.attrs.as<Conv2dAttrs>();
  const Tensor& w = args.in[0];
  const Tensor& ddx = args.dout[0];
  Tensor dw, ddy;
  if (args.wanted[0]) dw = conv2d_grad_weight(ddx, args.in[1], options_of(attrs), {w.size(1), w.size(2)});
  if (args.wanted[1]) ddy = conv2d(ddx, w, options_of(attrs));
  return {dw, ddy};
}

std::vector<Tensor> weight_grad(const GradArgs& args) {
  const auto& attrs = args.attrs.as<Conv2dAttrs>();
  const Tensor& x = args.in[0];
  const Tensor ddw = cast(args.dout[0], x.dtype());
  Tensor dx, ddy;
  if (args.wanted[0]) dx = conv2d_grad_input(ddw, args.in[1], options_of(attrs), {x.size(1), x.size(2)});
  if (args.wanted[1]) ddy = conv2d(x, ddw, options_of(attrs));
  return {dx, ddy};
}

ShardingRule input_shard(const TypeArgs& args) {
  const ConvParts part = conv_parts("conv2d_grad_input", args.in[0], args.attrs.as<Conv2dAttrs>());
  return parse_rule(part.w + "," + part.y + "->" + part.x, args.in, args.out, part.options);
}

ShardingRule weight_shard(const TypeArgs& args) {
  const ConvParts part = conv_parts("conv2d_grad_weight", args.out[0], args.attrs.as<Conv2dAttrs>());
  return parse_rule(part.x + "," + part.y + "->" + part.w, args.in, args.out, part.options);
}

Attrs input_in_window(const Attrs& record, int dim, int64_t length) {
  Conv2dAttrs attrs = record.as<Conv2dAttrs>();
  attrs.padding = without_padding(attrs.padding, dim);
  attrs.size[static_cast<size_t>(dim) - 1] = length;
  return Attrs::of(attrs);
}
Attrs weight_in_window(const Attrs& record, int dim, int64_t) {
  Conv2dAttrs attrs = record.as<Conv2dAttrs>();
  attrs.padding = without_padding(attrs.padding, dim);
  return Attrs::of(attrs);
}

Cost input_cost(const TypeArgs& args) {
  return conv_cost(args, args.in[0], args.in[1]);
}
Cost weight_cost(const TypeArgs& args) {
  return conv_cost(args, args.out[0], args.in[1]);
}

void input_kernel(const KernelArgs& args) {
  const View& w = args.in[0];
  const View& dy = args.in[1];
  const View& dx = args.out[0];
  const Conv conv{dx.type, w.type, dy.type, conv_windows("conv2d_grad_input", w.type, args.attrs.as<Conv2dAttrs>())};
  with_floating("conv2d_grad_input", dx.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    accumulate<T, T>(conv, dx, w, dy, [](size_t x, size_t wi, size_t y) { return std::array{x, wi, y}; });
  });
}

void weight_kernel(const KernelArgs& args) {
  const View& x = args.in[0];
  const View& dy = args.in[1];
  const View& dw = args.out[0];
  const TensorType w_type{x.type.dtype, dw.type.shape};
  const Conv conv{x.type, w_type, dy.type, conv_windows("conv2d_grad_weight", w_type, args.attrs.as<Conv2dAttrs>())};
  with_floating("conv2d_grad_weight", x.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    accumulate<T, Statistic<T>>(conv, dw, x, dy, [](size_t xi, size_t w, size_t y) { return std::array{w, xi, y}; });
  });
}

std::vector<Example> input_examples() {
  return {
      {.in = {f32({6, 3, 3, 6}), f32({2, 5, 5, 6})},
       .attrs = Attrs::of(Conv2dAttrs{.padding = {1, 1}, .size = {5, 5}})},
      {.in = {f32({12, 3, 2, 2}), f32({6, 3, 4, 12})},
       .attrs = Attrs::of(Conv2dAttrs{.stride = {2, 1}, .padding = {1, 0, 0, 2}, .dilation = {1, 2}, .size = {7, 4}})},
      {.in = {f32({12, 2, 2, 1}), f32({1, 3, 3, 12})}, .attrs = Attrs::of(Conv2dAttrs{.groups = 6, .size = {4, 4}})},
      {.in = {f32({4, 3, 3, 2}), f32({1, 6, 6, 4})},
       .attrs = Attrs::of(Conv2dAttrs{.stride = {2, 1}, .padding = {1, 1}, .size = {12, 6}})}};
}

std::vector<Example> weight_examples() {
  return {
      {.in = {f32({2, 5, 5, 6}), f32({2, 5, 5, 6})},
       .attrs = Attrs::of(Conv2dAttrs{.padding = {1, 1}, .size = {3, 3}})},
      {.in = {f32({6, 7, 4, 2}), f32({6, 3, 4, 12})},
       .attrs = Attrs::of(Conv2dAttrs{.stride = {2, 1}, .padding = {1, 0, 0, 2}, .dilation = {1, 2}, .size = {3, 2}})},
      {.in = {{DType::kBF16, {2, 5, 5, 6}}, {DType::kBF16, {2, 5, 5, 6}}},
       .attrs = Attrs::of(Conv2dAttrs{.padding = {1, 1}, .size = {3, 3}})},
      {.in = {f32({1, 4, 4, 6}), f32({1, 3, 3, 12})}, .attrs = Attrs::of(Conv2dAttrs{.groups = 6, .size = {2, 2}})},
      {.in = {f32({1, 12, 6, 2}), f32({1, 6, 6, 4})},
       .attrs = Attrs::of(Conv2dAttrs{.stride = {2, 1}, .padding = {1, 1}, .size = {3, 3}})}};
}

}  // namespace conv2d_grad_op

namespace ops {
extern const OpDef conv2d_grad_input{
    {"conv2d_grad_input", &Attrs::parse<Conv2dAttrs>},
    {
        .doc = "dx of conv2d",
        .inputs = "weight, dy",
        .infer = conv2d_grad_op::input_infer,
        .grad = conv2d_grad_op::input_grad,
        .shard = conv2d_grad_op::input_shard,
        .cost = conv2d_grad_op::input_cost,
        .kernel = conv2d_grad_op::input_kernel,
        .examples = conv2d_grad_op::input_examples,
        .in_window = conv2d_grad_op::input_in_window,
    },
};
extern const OpDef conv2d_grad_weight{
    {"conv2d_grad_weight", &Attrs::parse<Conv2dAttrs>},
    {
        .doc = "dw[o,a,b,i] = sum_{n,p,q} dy[n,p,q,o] x[n, p s - top + a d, q s - left + b d, i]",
        .inputs = "x, dy",
        .infer = conv2d_grad_op::weight_infer,
        .grad = conv2d_grad_op::weight_grad,
        .shard = conv2d_grad_op::weight_shard,
        .cost = conv2d_grad_op::weight_cost,
        .kernel = conv2d_grad_op::weight_kernel,
        .examples = conv2d_grad_op::weight_examples,
        .in_window = conv2d_grad_op::weight_in_window,
    },
};
}  // namespace ops

Tensor conv2d_grad_input(const Tensor& weight, const Tensor& dy, const ConvOptions& o,
                         std::array<int64_t, 2> input_size) {
  return apply1(ops::conv2d_grad_input, {weight, dy},
                Attrs::of(Conv2dAttrs{o.stride, o.padding, o.dilation, o.groups, {input_size[0], input_size[1]}}));
}

Tensor conv2d_grad_weight(const Tensor& x, const Tensor& dy, const ConvOptions& o, std::array<int64_t, 2> kernel_size) {
  return apply1(ops::conv2d_grad_weight, {x, dy},
                Attrs::of(Conv2dAttrs{o.stride, o.padding, o.dilation, o.groups, {kernel_size[0], kernel_size[1]}}));
}

}  // namespace trireme
