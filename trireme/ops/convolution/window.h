// Windows that slide over the two middle dimensions of [n,h,w,c]: what convolution and pooling
// share.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "trireme/ops/reference.h"

namespace trireme {

// Along one dimension, tap `k` of output position `o` lies on input position o * stride - before +
// k * dilation.
struct Window {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t before = 0;
  int64_t after = 0;
  int64_t dilation = 1;

  int64_t reach() const { return dilation * (kernel - 1) + 1; }
  int64_t output(int64_t input) const { return (input + before + after - reach()) / stride + 1; }
  int64_t at(int64_t o, int64_t k) const { return o * stride - before + k * dilation; }
};
using Windows = std::array<Window, 2>;

// Of the two dimensions, from attributes. Throws kInvalidArgument when a list has the wrong length
// or a value that is out of range.
Windows windows_of(std::string_view op, std::span<const int64_t> kernel, std::span<const int64_t> stride,
                   std::span<const int64_t> padding, std::span<const int64_t> dilation);

// [n,h,w,c] -> [n,h',w',channels]. Throws when a window does not fit the padded input.
TensorType window_output(std::string_view op, const TensorType& x, const Windows& windows, int64_t channels);

// What a sharding rule says of the two dimensions of [n,h,w,c] that windows slide over: the factors, of the output's
// positions p or q, and its window. Where each output sees its own position alone, there is none.
struct WindowParts {
  std::string x, y;  // "p~q~" and "pq"
  std::map<char, SlidingWindow> windows;
};
WindowParts window_parts(const Windows& windows, double fill);

// Padding as [top,bottom,left,right] with none along dimension 1 or 2.
std::vector<int64_t> without_padding(std::span<const int64_t> padding, int dim);

// Calls fn(output position, input position, tap) for every tap that lies inside an image of
// `h` by `w`; positions and taps are counted row by row.
template <class Fn>
void each_tap(const Windows& windows, int64_t h, int64_t w, int64_t out_h, int64_t out_w, Fn&& fn) {
  for (int64_t oy = 0; oy < out_h; ++oy) {
    for (int64_t ox = 0; ox < out_w; ++ox) {
      for (int64_t ky = 0; ky < windows[0].kernel; ++ky) {
        for (int64_t kx = 0; kx < windows[1].kernel; ++kx) {
          const int64_t y = windows[0].at(oy, ky);
          const int64_t x = windows[1].at(ox, kx);
          if (y < 0 || y >= h || x < 0 || x >= w) continue;
          fn(oy * out_w + ox, y * w + x, ky * windows[1].kernel + kx);
        }
      }
    }
  }
}

}  // namespace trireme
