// What convolution and its two gradients share. x is [n,h,w,i], the weight [o,kh,kw,i/groups], y
// [n,h',w',o].
#pragma once

#include "trireme/ops/convolution/window.h"

namespace trireme::detail {

// The three tensors of one convolution, whichever of them is the result.
struct Conv {
  TensorType x, w, y;
  Windows windows;
};

// Checks everything about x and w, and gives y. Throws kInvalidArgument.
Conv conv_of(std::string_view op, const TensorType& x, const TensorType& w, const Conv2dAttrs& attrs);

Windows conv_windows(std::string_view op, const TensorType& w, const Conv2dAttrs& attrs);

// Multiply-adds of all three ops are the same; the local shapes may be those of a piece.
Cost conv_cost(const TypeArgs& args, const TensorType& w, const TensorType& y);

// The rule of an op with the given parts ("x,w->y" in some order). With one group every channel may
// be cut; with more the groups are, and the channels of one group stay together.
struct ConvParts {
  std::string x, w, y;
  RuleOptions options;
};
ConvParts conv_parts(std::string_view op, const TensorType& w, const Conv2dAttrs& attrs);

// Calls fn(element of x, element of w, element of y) for each product.
template <class Fn>
void each_product(const Conv& conv, Fn&& fn) {
  const Shape& x = conv.x.shape;
  const Shape& w = conv.w.shape;
  const Shape& y = conv.y.shape;
  const int64_t taps = w[1] * w[2];
  const int64_t outputs_of_group = y[3] / (x[3] / w[3]);
  for (int64_t n = 0; n < x[0]; ++n) {
    each_tap(conv.windows, x[1], x[2], y[1], y[2], [&](int64_t to, int64_t from, int64_t tap) {
      for (int64_t o = 0; o < y[3]; ++o) {
        const int64_t xi = (n * x[1] * x[2] + from) * x[3] + o / outputs_of_group * w[3];
        const int64_t wi = (o * taps + tap) * w[3];
        const int64_t yi = (n * y[1] * y[2] + to) * y[3] + o;
        for (int64_t i = 0; i < w[3]; ++i) {
          fn(static_cast<size_t>(xi + i), static_cast<size_t>(wi + i), static_cast<size_t>(yi));
        }
      }
    });
  }
}

// result[r] += a[.] b[.] over all products, in double; `pick` maps the three elements to those of
// (result, a, b).
template <class T, class Result, class Pick>
void accumulate(const Conv& conv, const View& result, const View& a, const View& b, Pick&& pick) {
  const auto left = a.as<T>();
  const auto right = b.as<T>();
  std::vector<double> sums(static_cast<size_t>(result.elements()));
  each_product(conv, [&](size_t x, size_t w, size_t y) {
    const auto [r, p, q] = pick(x, w, y);
    sums[r] += load(left[p]) * load(right[q]);
  });
  for (size_t i = 0; i < sums.size(); ++i) result.as<Result>()[i] = store<Result>(sums[i]);
}

}  // namespace trireme::detail
