// max_pool2d: y[n,p,q,c] = the largest x[n,.,.,c] of the window at (p,q); padding never wins, and what is not a number
// always does
//
// Its gradient goes to the first of the largest elements, which it finds again.
#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/said.h"
#include "trireme/ops/convolution/window.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace ops {
extern const OpDef max_pool2d_grad;
}  // namespace ops

namespace max_pool2d_op {

// What stands for padding in the windows of a piece.
constexpr double kNeverWins = -std::numeric_limits<double>::infinity();

Windows windows(const Attrs& record) {
  const auto& attrs = record.as<Pool2dAttrs>();
  const std::array<int64_t, 2> dilation = {1, 1};
  return windows_of("max_pool2d", attrs.kernel, attrs.stride, attrs.padding, dilation);
}

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  require(is_floating(x.dtype) && x.shape.rank() == 4, "max_pool2d: x must be [n,h,w,c] and floating (x {})", said(x));
  const Windows w = windows(args.attrs);
  for (const Window& window : w) {
    require(window.before < window.kernel && window.after < window.kernel,
            "max_pool2d: padding of {} and {} for a kernel of {}; it must be smaller than the kernel", window.before,
            window.after, window.kernel);
  }
  return {window_output("max_pool2d", x, w, x.shape[3])};
}

std::vector<TensorType> grad_infer(const InferArgs& args) {
  const std::vector<TensorType> y = infer({args.in.subspan(0, 1), args.attrs});
  require(args.in[1] == y[0], "max_pool2d_grad: dy is {} where the pooling gives {} (x {})", said(args.in[1]),
          said(y[0]), said(args.in[0]));
  return {args.in[0]};
}

std::vector<Tensor> grad(const GradArgs& args) {
  return {apply1(ops::max_pool2d_grad, {args.in[0], args.dout[0]}, args.attrs)};
}

ShardingRule shard(const TypeArgs& args) {
  const WindowParts part = window_parts(windows(args.attrs), kNeverWins);
  return parse_rule("n" + part.x + "c->n" + part.y + "c", args.in, args.out, {.windows = part.windows});
}
ShardingRule grad_shard(const TypeArgs& args) {
  const WindowParts part = window_parts(windows(args.attrs), kNeverWins);
  const std::string x = "n" + part.x + "c";
  return parse_rule(x + ",n" + part.y + "c->" + x, args.in, args.out, {.linear = {{1}}, .windows = part.windows});
}

Attrs in_window(const Attrs& record, int dim, int64_t) {
  Pool2dAttrs attrs = record.as<Pool2dAttrs>();
  attrs.padding = without_padding(attrs.padding, dim);
  return Attrs::of(attrs);
}

Cost cost_of(const TypeArgs& args, const TensorType& y) {
  const auto& kernel = args.attrs.as<Pool2dAttrs>().kernel;
  return {.flops = static_cast<double>(y.elements() * kernel[0] * kernel[1]), .bytes = tensor_bytes(args)};
}
Cost cost(const TypeArgs& args) {
  return cost_of(args, args.out[0]);
}
Cost grad_cost(const TypeArgs& args) {
  return cost_of(args, args.in[1]);
}

// Calls fn(element of y, element of x that is the largest of its window, value).
template <class T, class Fn>
void each_maximum(const View& x_view, const Shape& y, const Attrs& attrs, Fn&& fn) {
  const auto x = x_view.as<T>();
  const Shape& shape = x_view.type.shape;
  const int64_t channels = shape[3];
  const Windows w = windows(attrs);
  std::vector<double> best(static_cast<size_t>(y[1] * y[2]));
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<size_t> where(best.size());
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      std::ranges::fill(where, kNone);
      each_tap(w, shape[1], shape[2], y[1], y[2], [&](int64_t to, int64_t from, int64_t) {
        const auto at = static_cast<size_t>((n * shape[1] * shape[2] + from) * channels + c);
        const auto out = static_cast<size_t>(to);
        const double value = load(x[at]);
        if (where[out] != kNone && (value <= best[out] || std::isnan(best[out]))) return;
        best[out] = value;
        where[out] = at;
      });
      for (size_t out = 0; out < best.size(); ++out) {
        fn(static_cast<size_t>(n * y[1] * y[2] * channels + c) + out * static_cast<size_t>(channels), where[out],
           best[out]);
      }
    }
  }
}

void kernel(const KernelArgs& args) {
  with_floating("max_pool2d", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    each_maximum<T>(args.in[0], args.out[0].type.shape, args.attrs,
                    [&](size_t y, size_t, double value) { args.out[0].as<T>()[y] = store<T>(value); });
  });
}

void grad_kernel(const KernelArgs& args) {
  with_floating("max_pool2d_grad", args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = args.in[1].as<T>();
    std::vector<double> sums(static_cast<size_t>(args.out[0].elements()));
    each_maximum<T>(args.in[0], args.in[1].type.shape, args.attrs,
                    [&](size_t y, size_t x, double) { sums[x] += load(dy[y]); });
    for (size_t i = 0; i < sums.size(); ++i) args.out[0].as<T>()[i] = store<T>(sums[i]);
  });
}

std::vector<Example> examples() {
  return {{.in = {f32({2, 4, 6, 6})}, .attrs = Attrs::of(Pool2dAttrs{}), .fill = {distinct(-1, 1)}},
          {.in = {f32({6, 5, 4, 3})},
           .attrs = Attrs::of(Pool2dAttrs{.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}}),
           .fill = {distinct(-1, 1)}},
          {.in = {f32({1, 6, 12, 2})},
           .attrs = Attrs::of(Pool2dAttrs{.kernel = {3, 3}, .stride = {1, 2}, .padding = {1, 1}}),
           .fill = {distinct(-1, 1)}}};
}

std::vector<Example> grad_examples() {
  std::vector<Example> out = examples();
  out[0].in.push_back(f32({2, 2, 3, 6}));
  out[1].in.push_back(f32({6, 3, 5, 3}));
  out[2].in.push_back(f32({1, 6, 6, 2}));
  return out;
}

}  // namespace max_pool2d_op

namespace ops {
extern const OpDef max_pool2d{
    {"max_pool2d", &Attrs::parse<Pool2dAttrs>},
    {
        .doc = "y[n,p,q,c] = max of x[n,.,.,c] over the window at (p,q)",
        .inputs = "x",
        .infer = max_pool2d_op::infer,
        .grad = max_pool2d_op::grad,
        .shard = max_pool2d_op::shard,
        .cost = max_pool2d_op::cost,
        .kernel = max_pool2d_op::kernel,
        .examples = max_pool2d_op::examples,
        .in_window = max_pool2d_op::in_window,
    },
};
extern const OpDef max_pool2d_grad{
    {"max_pool2d_grad", &Attrs::parse<Pool2dAttrs>},
    {
        .doc = "dx = dy at the first largest element of each window",
        .inputs = "x, dy",
        .infer = max_pool2d_op::grad_infer,
        .grad = Facet<GradFn>::none("a gradient is not differentiated again"),
        .shard = max_pool2d_op::grad_shard,
        .cost = max_pool2d_op::grad_cost,
        .kernel = max_pool2d_op::grad_kernel,
        .examples = max_pool2d_op::grad_examples,
        .in_window = max_pool2d_op::in_window,
    },
};
}  // namespace ops

Tensor max_pool2d(const Tensor& x, const PoolOptions& o) {
  return apply1(ops::max_pool2d, {x}, Attrs::of(Pool2dAttrs{o.kernel, o.stride, o.padding, true, {}}));
}

}  // namespace trireme
