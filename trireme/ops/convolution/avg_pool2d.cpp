// avg_pool2d: y[n,p,q,c] = the mean of x[n,.,.,c] over the window at (p,q); padded zeros count
// unless told otherwise
#include "trireme/base/said.h"
#include "trireme/ops/convolution/window.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace ops {
extern const OpDef avg_pool2d;
extern const OpDef avg_pool2d_grad;
}  // namespace ops

namespace avg_pool2d_op {

Windows windows(const char* op, const Attrs& record) {
  const auto& attrs = record.as<Pool2dAttrs>();
  const std::array<int64_t, 2> dilation = {1, 1};
  const Windows out = windows_of(op, attrs.kernel, attrs.stride, attrs.padding, dilation);
  for (const Window& window : out) {
    require(window.before < window.kernel && window.after < window.kernel,
            "{}: padding of {} and {} for a kernel of {}; it must be smaller than the kernel", op, window.before,
            window.after, window.kernel);
  }
  return out;
}

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  require(is_floating(x.dtype) && x.shape.rank() == 4, "avg_pool2d: x must be [n,h,w,c] and floating (x {})", said(x));
  return {window_output("avg_pool2d", x, windows("avg_pool2d", args.attrs), x.shape[3])};
}

std::vector<TensorType> grad_infer(const InferArgs& args) {
  const TensorType& dy = args.in[0];
  const auto& size = args.attrs.as<Pool2dAttrs>().size;
  require(is_floating(dy.dtype) && dy.shape.rank() == 4, "avg_pool2d_grad: dy must be [n,h,w,c] and floating (dy {})",
          said(dy));
  require(size.size() == 2 && size[0] > 0 && size[1] > 0,
          "avg_pool2d_grad: size must be [h,w], each above 0; there are {} values", size.size());
  const TensorType x{dy.dtype, {dy.shape[0], size[0], size[1], dy.shape[3]}};
  const TensorType y = window_output("avg_pool2d_grad", x, windows("avg_pool2d_grad", args.attrs), x.shape[3]);
  require(y == dy, "avg_pool2d_grad: dy is {} where the pooling gives {} (x {})", said(dy), said(y), said(x));
  return {x};
}

std::vector<Tensor> grad(const GradArgs& args) {
  Pool2dAttrs attrs = args.attrs.as<Pool2dAttrs>();
  attrs.size = {args.in[0].size(1), args.in[0].size(2)};
  return {apply1(ops::avg_pool2d_grad, {args.dout[0]}, Attrs::of(attrs))};
}

std::vector<Tensor> grad_grad(const GradArgs& args) {
  Pool2dAttrs attrs = args.attrs.as<Pool2dAttrs>();
  attrs.size.clear();
  return {apply1(ops::avg_pool2d, {args.dout[0]}, Attrs::of(attrs))};
}

// Where padding does not count, the mean's divisor depends on how much of it a window sees: such dimensions are not
// cut.
WindowParts parts(const Attrs& record) {
  const Windows w = windows("avg_pool2d", record);
  WindowParts out = window_parts(w, 0);
  if (record.as<Pool2dAttrs>().count_padding) return out;
  for (size_t i = 0; i < 2; ++i) {
    const char letter = i == 0 ? 'p' : 'q';
    if (w[i].before == 0 && w[i].after == 0) continue;
    for (std::string* text : {&out.x, &out.y}) {
      const size_t at = text->find(letter);
      const bool windowed = at + 1 < text->size() && (*text)[at + 1] == '~';
      text->replace(at, windowed ? 2 : 1, ".");
    }
  }
  return out;
}

ShardingRule shard(const TypeArgs& args) {
  const WindowParts part = parts(args.attrs);
  return parse_rule("n" + part.x + "c->n" + part.y + "c", args.in, args.out,
                    {.linear = {{0}}, .windows = part.windows});
}
ShardingRule grad_shard(const TypeArgs& args) {
  const WindowParts part = parts(args.attrs);
  return parse_rule("n" + part.y + "c->n" + part.x + "c", args.in, args.out,
                    {.linear = {{0}}, .windows = part.windows});
}

Attrs in_window(const Attrs& record, int dim, int64_t length) {
  Pool2dAttrs attrs = record.as<Pool2dAttrs>();
  attrs.padding = without_padding(attrs.padding, dim);
  if (!attrs.size.empty()) attrs.size[static_cast<size_t>(dim) - 1] = length;
  return Attrs::of(attrs);
}

Cost cost_of(const TypeArgs& args, const TensorType& y) {
  const auto& kernel = args.attrs.as<Pool2dAttrs>().kernel;
  return {.flops = static_cast<double>(y.elements() * (kernel[0] * kernel[1] + 1)), .bytes = tensor_bytes(args)};
}
Cost cost(const TypeArgs& args) {
  return cost_of(args, args.out[0]);
}
Cost grad_cost(const TypeArgs& args) {
  return cost_of(args, args.in[0]);
}

// Calls fn(element of x, element of y, 1 / elements of the window) for each pair that meets.
template <class Fn>
void each_pair(const Attrs& record, const Shape& x, const Shape& y, Fn&& fn) {
  const auto& attrs = record.as<Pool2dAttrs>();
  const Windows w = windows("avg_pool2d", record);
  std::vector<int64_t> counts(static_cast<size_t>(y[1] * y[2]), attrs.kernel[0] * attrs.kernel[1]);
  if (!attrs.count_padding) {
    std::fill(counts.begin(), counts.end(), 0);
    each_tap(w, x[1], x[2], y[1], y[2], [&](int64_t to, int64_t, int64_t) { ++counts[static_cast<size_t>(to)]; });
  }
  for (int64_t n = 0; n < x[0]; ++n) {
    each_tap(w, x[1], x[2], y[1], y[2], [&](int64_t to, int64_t from, int64_t) {
      const int64_t xi = (n * x[1] * x[2] + from) * x[3];
      const int64_t yi = (n * y[1] * y[2] + to) * y[3];
      const double share = 1 / static_cast<double>(counts[static_cast<size_t>(to)]);
      for (int64_t c = 0; c < x[3]; ++c) fn(static_cast<size_t>(xi + c), static_cast<size_t>(yi + c), share);
    });
  }
}

// The operand weighted by shares and summed where x and y meet; `forward` says which of the two is
// the operand.
template <class T>
void spread(const KernelArgs& args, bool forward) {
  const auto from = args.in[0].as<T>();
  const auto to = args.out[0].as<T>();
  const Shape& x = forward ? args.in[0].type.shape : args.out[0].type.shape;
  const Shape& y = forward ? args.out[0].type.shape : args.in[0].type.shape;
  std::vector<double> sums(to.size());
  each_pair(args.attrs, x, y, [&](size_t xi, size_t yi, double share) {
    sums[forward ? yi : xi] += share * load(from[forward ? xi : yi]);
  });
  for (size_t i = 0; i < sums.size(); ++i) to[i] = store<T>(sums[i]);
}

void kernel(const KernelArgs& args) {
  with_floating("avg_pool2d", args.out[0].type.dtype, [&](auto zero) { spread<decltype(zero)>(args, true); });
}

void grad_kernel(const KernelArgs& args) {
  with_floating("avg_pool2d_grad", args.out[0].type.dtype, [&](auto zero) { spread<decltype(zero)>(args, false); });
}

Pool2dAttrs overlapping() {
  return {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .count_padding = false};
}

std::vector<Example> examples() {
  return {{.in = {f32({2, 4, 6, 6})}, .attrs = Attrs::of(Pool2dAttrs{})},
          {.in = {f32({6, 5, 4, 3})}, .attrs = Attrs::of(overlapping())},
          {.in = {f32({1, 2, 2, 1})}, .attrs = Attrs::of(Pool2dAttrs{.padding = {1, 0, 0, 1}})},
          {.in = {f32({1, 6, 12, 2})},
           .attrs = Attrs::of(Pool2dAttrs{.kernel = {3, 3}, .stride = {1, 2}, .padding = {1, 1}})}};
}

std::vector<Example> grad_examples() {
  Pool2dAttrs uneven = overlapping();
  uneven.size = {5, 4};
  return {{.in = {f32({2, 2, 3, 6})}, .attrs = Attrs::of(Pool2dAttrs{.size = {4, 6}})},
          {.in = {f32({6, 3, 5, 3})}, .attrs = Attrs::of(uneven)},
          {.in = {f32({1, 6, 6, 2})},
           .attrs = Attrs::of(Pool2dAttrs{.kernel = {3, 3}, .stride = {1, 2}, .padding = {1, 1}, .size = {6, 12}})}};
}

}  // namespace avg_pool2d_op

namespace ops {
extern const OpDef avg_pool2d{
    {"avg_pool2d", &Attrs::parse<Pool2dAttrs>},
    {
        .doc = "y[n,p,q,c] = mean of x[n,.,.,c] over the window at (p,q)",
        .inputs = "x",
        .infer = avg_pool2d_op::infer,
        .grad = avg_pool2d_op::grad,
        .shard = avg_pool2d_op::shard,
        .cost = avg_pool2d_op::cost,
        .kernel = avg_pool2d_op::kernel,
        .examples = avg_pool2d_op::examples,
        .in_window = avg_pool2d_op::in_window,
    },
};
extern const OpDef avg_pool2d_grad{
    {"avg_pool2d_grad", &Attrs::parse<Pool2dAttrs>},
    {
        .doc = "dx = each dy spread over its window",
        .inputs = "dy",
        .infer = avg_pool2d_op::grad_infer,
        .grad = avg_pool2d_op::grad_grad,
        .shard = avg_pool2d_op::grad_shard,
        .cost = avg_pool2d_op::grad_cost,
        .kernel = avg_pool2d_op::grad_kernel,
        .examples = avg_pool2d_op::grad_examples,
        .in_window = avg_pool2d_op::in_window,
    },
};
}  // namespace ops

Tensor avg_pool2d(const Tensor& x, const PoolOptions& o) {
  return apply1(ops::avg_pool2d, {x}, Attrs::of(Pool2dAttrs{o.kernel, o.stride, o.padding, o.count_padding, {}}));
}

}  // namespace trireme
