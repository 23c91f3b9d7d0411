// Cases of convolution and pooling.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/backend/cpu/cases/case_types_for_tests.h"
#include "trireme/op/op_attrs.h"

namespace trireme {

// x [n,h,h,i], kernels of k by k; `pass` tells which of the three tensors is the result.
enum class ConvPass { kForward, kInput, kWeight };

inline std::vector<Example> conv_cases(ConvPass pass) {
  std::vector<Example> cases;
  const auto add = [&](TensorType x, int64_t o, int64_t k, Conv2dAttrs attrs) {
    const auto out = [&](int dim) {
      const int64_t reach = (k - 1) * attrs.dilation[dim] + 1;
      return (x.shape[dim + 1] + 2 * attrs.padding[0] - reach) / attrs.stride[dim] + 1;
    };
    const TensorType w = f32_of({o, k, k, x.shape[3] / attrs.groups});
    const TensorType y = f32_of({x.shape[0], out(0), out(1), o});
    if (pass == ConvPass::kInput) attrs.size = {x.shape[1], x.shape[2]};
    if (pass == ConvPass::kWeight) attrs.size = {k, k};
    std::vector<TensorType> in = pass == ConvPass::kForward ? std::vector<TensorType>{x, w}
                                 : pass == ConvPass::kInput ? std::vector<TensorType>{w, y}
                                                            : std::vector<TensorType>{x, y};
    cases.push_back({.in = std::move(in), .attrs = Attrs::of(attrs)});
  };
  add(f32_of({1, 1, 1, 1}), 1, 1, {});
  add(f32_of({11, 9, 7, 3}), 17, 3, {.padding = {1, 1}});
  add(f32_of({9, 8, 8, 16}), 32, 3, {.stride = {2, 2}, .padding = {1, 1}});
  add(f32_of({3, 7, 7, 12}), 6, 2, {.groups = 3});
  // Windows of one position, few of them and many.
  add(f32_of({3, 7, 5, 37}), 19, 1, {});
  add(f32_of({9, 17, 17, 5}), 7, 1, {});
  // Channels enough to be run as products: strided, with and without edges, and as they lie.
  add(f32_of({3, 9, 7, 33}), 40, 3, {.stride = {2, 1}, .padding = {1, 1}});
  add(f32_of({2, 8, 6, 32}), 34, 1, {.stride = {2, 2}});
  add(f32_of({2, 5, 5, 40}), 36, 1, {});
  // Few channels: positions enough for several sums, and windows that step and reach over edges.
  add(f32_of({19, 14, 13, 1}), 6, 5, {.padding = {2, 2}});
  add(f32_of({3, 9, 10, 6}), 16, 5, {.stride = {2, 1}, .padding = {1, 1}});
  // Lines long enough to be vectors of positions: one tile of them and several, one input and more, no edges and wide
  // ones.
  add(f32_of({17, 6, 29, 1}), 7, 5, {.padding = {2, 2}});
  add(f32_of({2, 7, 27, 3}), 6, 3, {.padding = {1, 1}});
  add(f32_of({3, 4, 63, 2}), 8, 3, {});
  add(f32_of({1, 3, 26, 8}), 3, 2, {.padding = {3, 3}});
  // Three by three: tiles of four positions, whole and cut off, in one block and several; weights or patches kept;
  // sums of more terms than are multiplied at once; more tiles than a gradient of the weight transforms at once.
  add(f32_of({1, 6, 6, 16}), 16, 3, {});
  add(f32_of({3, 17, 18, 21}), 37, 3, {.padding = {1, 1}});
  add(f32_of({2, 5, 3, 18}), 67, 3, {.padding = {2, 2}});
  add(f32_of({1, 5, 6, 16}), 18, 3, {.padding = {3, 3}});
  add(f32_of({1, 7, 9, 270}), 86, 3, {.padding = {1, 1}});
  add(f32_of({3, 70, 69, 17}), 16, 3, {.padding = {1, 1}});
  // Lines of a window that lie apart, also inside the image.
  add(f32_of({4, 12, 11, 2}), 5, 3, {.padding = {1, 1}, .dilation = {2, 1}});
  return cases;
}

// x [n,h,w,c]; the gradients are given what the pooling gives.
inline Example pool_case(bool max, bool gradient, Shape x, Pool2dAttrs attrs, Fill fill) {
  const auto out = [&](size_t dim) {
    const std::vector<int64_t>& p = attrs.padding;
    const int64_t around = p.size() == 4 ? p[2 * dim] + p[2 * dim + 1] : 2 * p[dim];
    return (x[static_cast<int>(dim) + 1] + around - attrs.kernel[dim]) / attrs.stride[dim] + 1;
  };
  const TensorType of_x{DType::kF32, x};
  const TensorType of_y = f32_of({x[0], out(0), out(1), x[3]});
  if (gradient && !max) attrs.size = {x[1], x[2]};
  Example e{.in = {of_x}, .attrs = Attrs::of(attrs), .fill = {fill}};
  if (gradient && max) e.in.push_back(of_y);
  if (gradient && !max) e.in = {of_y};
  return e;
}

// Windows side by side, with gaps, overlapping, and over the edges; channels that fill no vector,
// one, and more.
inline std::vector<Example> pool_cases(bool max, bool gradient) {
  std::vector<Example> cases;
  const auto add = [&](Shape x, Pool2dAttrs attrs, Fill fill = {}) {
    cases.push_back(pool_case(max, gradient, x, std::move(attrs), fill));
  };
  add({1, 1, 1, 1}, {.kernel = {1, 1}, .stride = {1, 1}});
  add({37, 24, 24, 6}, {});
  add({5, 9, 7, 16}, {});
  for (const int64_t few : {1, 3, 5, 8}) add({3, 9, 11, few}, {});
  add({3, 11, 12, 35}, {.kernel = {2, 3}, .stride = {3, 4}});
  add({3, 14, 13, 17}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  add({2, 6, 5, 33}, {.kernel = {3, 2}, .stride = {1, 2}, .padding = {2, 0, 1, 1}, .count_padding = false});
  add({2, 7, 7, 3}, {.kernel = {7, 7}, .stride = {1, 1}});
  // Equal elements: the first takes the gradient.
  add({2, 8, 8, 20}, {.kernel = {3, 3}, .stride = {2, 2}}, whole_numbers(0, 3));
  add({2, 8, 8, 20}, {}, whole_numbers(0, 3));
  add({2, 8, 10, 3}, {}, whole_numbers(0, 3));
  return cases;
}

inline std::vector<Example> window_cases(std::string_view op) {
  if (op == "conv2d") return conv_cases(ConvPass::kForward);
  if (op == "conv2d_grad_input") return conv_cases(ConvPass::kInput);
  if (op == "conv2d_grad_weight") return conv_cases(ConvPass::kWeight);
  if (op == "max_pool2d") return pool_cases(true, false);
  if (op == "max_pool2d_grad") return pool_cases(true, true);
  if (op == "avg_pool2d") return pool_cases(false, false);
  if (op == "avg_pool2d_grad") return pool_cases(false, true);
  return {};
}

}  // namespace trireme
