// conv2d: y[n,p,q,o] = sum_{a,b,i} x[n, p s - top + a d, q s - left + b d, i] w[o,a,b,i]
//
// x is [n,h,w,i], the weight [o,kh,kw,i/groups], y [n,h',w',o]; positions outside x count as zero.
// With g groups the output channels of a group see the input channels of the same group only. Cut
// along h or w a rank takes its neighbours' border positions first (take_windows).
#include "trireme/ops/convolution/conv2d.h"

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace detail {

Windows conv_windows(std::string_view op, const TensorType& w, const Conv2dAttrs& attrs) {
  const std::array<int64_t, 2> kernel = {w.shape[1], w.shape[2]};
  return windows_of(op, kernel, attrs.stride, attrs.padding, attrs.dilation);
}

Conv conv_of(std::string_view op, const TensorType& x, const TensorType& w, const Conv2dAttrs& attrs) {
  require(is_floating(x.dtype) && x.dtype == w.dtype && x.shape.rank() == 4 && w.shape.rank() == 4,
          "{}: x must be [n,h,w,i] and the weight [o,kh,kw,i/groups], of one floating type (x {}, "
          "weight {})",
          op, said(x), said(w));
  require(attrs.groups >= 1 && w.shape[0] > 0 && w.shape[3] > 0 && w.shape[0] % attrs.groups == 0 &&
              x.shape[3] % attrs.groups == 0 && x.shape[3] / attrs.groups == w.shape[3],
          "{}: channels do not fit {} groups: the weight must have x's {} channels over the groups "
          "last, and a "
          "multiple of the groups first (x {}, weight {})",
          op, attrs.groups, x.shape[3], said(x), said(w));
  const Windows windows = conv_windows(op, w, attrs);
  return {x, w, window_output(op, x, windows, w.shape[0]), windows};
}

Cost conv_cost(const TypeArgs& args, const TensorType& w, const TensorType& y) {
  const int64_t products_per_output = w.shape[1] * w.shape[2] * w.shape[3];
  return {.flops = 2.0 * static_cast<double>(y.elements()) * static_cast<double>(products_per_output),
          .bytes = tensor_bytes(args)};
}

ConvParts conv_parts(std::string_view op, const TensorType& w, const Conv2dAttrs& attrs) {
  const WindowParts positions = window_parts(conv_windows(op, w, attrs), 0);
  const bool one = attrs.groups == 1;
  return {"n" + positions.x + (one ? "i" : "(gi!)"),
          one ? "o..i" : "(go!)..i!",
          "n" + positions.y + (one ? "o" : "(go!)"),
          {.linear = {{0}, {1}}, .sizes = {{'g', attrs.groups}}, .windows = positions.windows}};
}

}  // namespace detail

namespace conv2d_op {

using namespace detail;

std::vector<TensorType> infer(const InferArgs& args) {
  return {conv_of("conv2d", args.in[0], args.in[1], args.attrs.as<Conv2dAttrs>()).y};
}

std::vector<Tensor> grad(const GradArgs& args) {
  const auto& attrs = args.attrs.as<Conv2dAttrs>();
  const ConvOptions options{attrs.stride, attrs.padding, attrs.dilation, attrs.groups};
  const Tensor& x = args.in[0];
  const Tensor& w = args.in[1];
  Tensor dx, dw;
  if (args.wanted[0]) dx = conv2d_grad_input(w, args.dout[0], options, {x.size(1), x.size(2)});
  if (args.wanted[1]) dw = conv2d_grad_weight(x, args.dout[0], options, {w.size(1), w.size(2)});
  return {dx, dw};
}

ShardingRule shard(const TypeArgs& args) {
  const ConvParts part = conv_parts("conv2d", args.in[1], args.attrs.as<Conv2dAttrs>());
  return parse_rule(part.x + "," + part.w + "->" + part.y, args.in, args.out, part.options);
}

Attrs in_window(const Attrs& record, int dim, int64_t) {
  Conv2dAttrs attrs = record.as<Conv2dAttrs>();
  attrs.padding = without_padding(attrs.padding, dim);
  return Attrs::of(attrs);
}

Cost cost(const TypeArgs& args) {
  return conv_cost(args, args.in[1], args.out[0]);
}

void kernel(const KernelArgs& args) {
  const View& x = args.in[0];
  const View& w = args.in[1];
  const View& y = args.out[0];
  const Conv conv{x.type, w.type, y.type, conv_windows("conv2d", w.type, args.attrs.as<Conv2dAttrs>())};
  with_floating("conv2d", y.type.dtype, [&](auto zero) {
    accumulate<decltype(zero), decltype(zero)>(conv, y, x, w, [](size_t xi, size_t wi, size_t yi) {
      return std::array{yi, xi, wi};
    });
  });
}

std::vector<Example> examples() {
  return {{.in = {f32({2, 5, 5, 6}), f32({6, 3, 3, 6})}, .attrs = Attrs::of(Conv2dAttrs{.padding = {1, 1}})},
          {.in = {f32({6, 7, 4, 2}), f32({12, 3, 2, 2})},
           .attrs = Attrs::of(Conv2dAttrs{.stride = {2, 1}, .padding = {1, 0, 0, 2}, .dilation = {1, 2}})},
          {.in = {f32({1, 4, 4, 6}), f32({12, 2, 2, 1})}, .attrs = Attrs::of(Conv2dAttrs{.groups = 6})},
          {.in = {f32({2, 3, 3, 6}), f32({4, 1, 1, 3})}, .attrs = Attrs::of(Conv2dAttrs{.groups = 2})},
          {.in = {f32({1, 12, 6, 2}), f32({4, 3, 3, 2})},
           .attrs = Attrs::of(Conv2dAttrs{.stride = {2, 1}, .padding = {1, 1}})}};
}

}  // namespace conv2d_op

namespace ops {
extern const OpDef conv2d{
    {"conv2d", &Attrs::parse<Conv2dAttrs>},
    {
        .doc = "y[n,p,q,o] = sum_{a,b,i} x[n, p s - top + a d, q s - left + b d, i] w[o,a,b,i]",
        .inputs = "x, weight",
        .infer = conv2d_op::infer,
        .grad = conv2d_op::grad,
        .shard = conv2d_op::shard,
        .cost = conv2d_op::cost,
        .kernel = conv2d_op::kernel,
        .examples = conv2d_op::examples,
        .in_window = conv2d_op::in_window,
    },
};
}  // namespace ops

Tensor conv2d(const Tensor& x, const Tensor& weight, const ConvOptions& o) {
  return apply1(ops::conv2d, {x, weight}, Attrs::of(Conv2dAttrs{o.stride, o.padding, o.dilation, o.groups, {}}));
}

}  // namespace trireme
