// Cases on which kernels are compared with the reference, beside the examples of each op: sizes
// that are one, odd or prime, and longer than a vector, a tile or a task. For tests.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/op/op_attrs.h"
#include "trireme/op/op_def.h"

namespace trireme {

inline TensorType f32_of(std::initializer_list<int64_t> shape) {
  return {DType::kF32, Shape(shape)};
}
inline TensorType i64_of(std::initializer_list<int64_t> shape) {
  return {DType::kI64, Shape(shape)};
}
inline Fill whole_numbers(double low, double high) {
  return {Fill::Kind::kIntegers, low, high};
}

inline std::vector<Example> matmul_cases() {
  std::vector<Example> cases;
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      const Attrs attrs = Attrs::of(MatMulAttrs{ta, tb});
      const auto add = [&](int64_t m, int64_t n, int64_t k) {
        cases.push_back(
            {.in = {ta ? f32_of({k, m}) : f32_of({m, k}), tb ? f32_of({n, k}) : f32_of({k, n})},
             .attrs = attrs});
        cases.push_back({.in = {ta ? f32_of({3, k, m}) : f32_of({3, m, k}),
                                tb ? f32_of({3, n, k}) : f32_of({3, k, n})},
                         .attrs = attrs});
      };
      add(1, 1, 1);
      add(37, 1, 65);
      add(1, 53, 17);
      add(129, 67, 31);
    }
  }
  // Cut into blocks.
  cases.push_back(
      {.in = {f32_of({517, 263}), f32_of({263, 509})}, .attrs = Attrs::of(MatMulAttrs{})});
  cases.push_back({.in = {f32_of({263, 517}), f32_of({509, 263})},
                   .attrs = Attrs::of(MatMulAttrs{true, true})});
  cases.push_back({.in = {f32_of({2, 3, 7}), f32_of({7, 5})}, .attrs = Attrs::of(MatMulAttrs{})});
  return cases;
}

inline std::vector<Example> binary_cases() {
  const std::vector<Fill> away = {{Fill::Kind::kUniform, -1, 1}, {Fill::Kind::kUniform, 0.5, 2}};
  return {{.in = {f32_of({1}), f32_of({1})}, .fill = away},
          {.in = {f32_of({17}), f32_of({17})}, .fill = away},
          {.in = {f32_of({5, 7001}), f32_of({5, 7001})}, .fill = away},
          {.in = {f32_of({257, 129}), f32_of({129})}, .fill = away},
          {.in = {f32_of({31, 33}), f32_of({31, 1})}, .fill = away},
          {.in = {f32_of({1, 33}), f32_of({31, 1})}, .fill = away},
          {.in = {f32_of({3, 1, 5, 7}), f32_of({4, 1, 7})}, .fill = away},
          {.in = {f32_of({40001}), f32_of({})}, .fill = away},
          {.in = {f32_of({}), f32_of({1, 40001})}, .fill = away},
          {.in = {f32_of({0, 3}), f32_of({3})}, .fill = away}};
}

inline std::vector<Example> pair_cases() {
  const std::vector<Fill> wide = {{Fill::Kind::kUniform, -6, 6}};
  return {{.in = {f32_of({1}), f32_of({1})}, .fill = wide},
          {.in = {f32_of({3, 7001}), f32_of({3, 7001})}, .fill = wide}};
}

inline std::vector<Example> unary_cases(double low, double high, const Attrs& attrs) {
  const std::vector<Fill> fill = {{Fill::Kind::kUniform, low, high}};
  return {{.in = {f32_of({1})}, .attrs = attrs, .fill = fill},
          {.in = {f32_of({31})}, .attrs = attrs, .fill = fill},
          {.in = {f32_of({3, 11003})}, .attrs = attrs, .fill = fill},
          {.in = {f32_of({0})}, .attrs = attrs, .fill = fill}};
}

inline std::vector<Example> reduce_cases() {
  const auto over = [](TensorType x, std::vector<int64_t> dims, bool keep = false) {
    return Example{.in = {x}, .attrs = Attrs::of(ReduceAttrs{std::move(dims), keep})};
  };
  return {over(f32_of({1000, 37}), {0}),      over(f32_of({1000, 37}), {1}),
          over(f32_of({40001}), {0}),         over(f32_of({3, 700, 5}), {1}, true),
          over(f32_of({7, 11, 13}), {0, 1}),  over(f32_of({7, 11, 13}), {1, 2}),
          over(f32_of({7, 11, 13}), {0, 2}),  over(f32_of({0, 5}), {0}),
          over(f32_of({1, 5, 1, 3}), {0, 2}), over(f32_of({2, 3}), {0, 1}, true)};
}

inline std::vector<Example> label_cases(bool gradient) {
  const auto on = [&](int64_t rows, int64_t classes, CrossEntropyAttrs attrs) {
    Example e{
        .in = {f32_of({rows, classes}), i64_of({rows})},
        .attrs = Attrs::of(attrs),
        .fill = {{Fill::Kind::kUniform, -9, 9}, whole_numbers(0, static_cast<double>(classes))}};
    if (gradient) e.in.push_back(f32_of({rows}));
    return e;
  };
  return {on(1, 1, {}), on(13, 37, {}), on(5, 20011, {}),
          on(33, 65, {.ignore_index = 3, .label_smoothing = 0.1})};
}

inline std::vector<Example> norm_grad_cases() {
  const auto on = [](int64_t rows, int64_t size) {
    return Example{.in = {f32_of({rows, size}), f32_of({size}), f32_of({rows}), f32_of({rows}),
                          f32_of({rows, size})}};
  };
  return {on(1, 1), on(1, 67), on(131, 33), on(67, 256)};
}

// One tile and several of both kinds, shared key heads, one query, rests, and a mask beside none.
inline std::vector<Example> attention_cases(bool gradient) {
  std::vector<Example> cases;
  const auto add = [&](Shape q, int64_t t, int64_t g, bool causal) {
    const TensorType query{DType::kF32, q};
    const TensorType key = f32_of({q[0], t, g, q[3]});
    Example e{.in = {query, key, key},
              .attrs = Attrs::of(AttentionAttrs{causal, causal ? 0.3 : 0})};
    if (gradient) {
      e.in.push_back(query);
      e.in.push_back(f32_of({q[0], q[2], q[1]}));
      e.in.push_back(query);
      e.fill = {{}, {}, {}, {}, {Fill::Kind::kUniform, 2, 5}, {}};
    }
    cases.push_back(std::move(e));
  };
  for (bool causal : {false, true}) {
    add({1, 1, 1, 1}, 1, 1, causal);
    add({2, 64, 2, 64}, 64, 2, causal);
    add({1, 131, 4, 16}, 131, 2, causal);
    add({1, 70, 3, 8}, 531, 1, causal);
    add({2, 1, 4, 5}, 300, 4, causal);
  }
  return cases;
}

inline std::vector<Example> dropout_cases() {
  const auto on = [](TensorType x, double p) {
    return Example{.in = {x, i64_of({})},
                   .attrs = Attrs::of(DropoutAttrs{p, 3, 5}),
                   .fill = {{}, whole_numbers(1, 9)}};
  };
  return {on(f32_of({1}), 0.5), on(f32_of({3, 5, 7}), 0.9), on(f32_of({7, 4099}), 0.1),
          on(f32_of({65}), 0)};
}

inline std::vector<Example> transpose_cases() {
  const auto on = [](TensorType x, std::vector<int64_t> perm) {
    return Example{.in = {x}, .attrs = Attrs::of(TransposeAttrs{std::move(perm)})};
  };
  return {on(f32_of({1, 1}), {1, 0}),
          on(f32_of({257, 131}), {1, 0}),
          on(f32_of({2, 35, 3, 67}), {0, 2, 1, 3}),
          on(f32_of({3, 5, 33, 41}), {0, 1, 3, 2}),
          on(f32_of({7, 33, 35}), {2, 1, 0}),
          on(f32_of({7, 33, 35}), {1, 2, 0}),
          on(f32_of({4, 3, 2, 5, 3}), {4, 2, 0, 3, 1}),
          on({DType::kBF16, {67, 33}}, {1, 0}),
          on(f32_of({5, 7}), {0, 1}),
          on(f32_of({0, 7}), {1, 0})};
}

// x [n,h,h,i], kernels of k by k; `pass` tells which of the three tensors is the result.
enum class ConvPass { kForward, kInput, kWeight };

inline std::vector<Example> conv_cases(ConvPass pass) {
  std::vector<Example> cases;
  const auto add = [&](TensorType x, int64_t o, int64_t k, Conv2dAttrs attrs) {
    const auto out = [&](int64_t size, int64_t stride) {
      return (size + 2 * attrs.padding[0] - k) / stride + 1;
    };
    const TensorType w = f32_of({o, k, k, x.shape[3] / attrs.groups});
    const TensorType y =
        f32_of({x.shape[0], out(x.shape[1], attrs.stride[0]), out(x.shape[2], attrs.stride[1]), o});
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
  return cases;
}

inline std::vector<Example> more_cases(std::string_view op) {
  for (const char* name : {"add", "sub", "mul", "div", "maximum", "minimum"}) {
    if (op == name) return binary_cases();
  }
  for (const char* name : {"relu_grad", "silu_grad", "softmax_grad"}) {
    if (op == name) return pair_cases();
  }
  for (const char* name : {"neg", "abs", "square", "tanh", "sigmoid", "erf", "relu", "silu"}) {
    if (op == name) return unary_cases(-12, 12, Attrs());
  }
  for (const char* name : {"sqrt", "rsqrt", "reciprocal"}) {
    if (op == name) return unary_cases(0.01, 100, Attrs());
  }
  if (op == "exp") return unary_cases(-100, 3, Attrs());
  if (op == "softmax") return unary_cases(-30, 30, Attrs());
  if (op == "scale" || op == "add_scalar") return unary_cases(-9, 9, Attrs::of(ScalarAttrs{-0.3}));
  if (op == "clamp") return unary_cases(-9, 9, Attrs::of(ClampAttrs{-1, 2}));
  if (op == "matmul") return matmul_cases();
  if (op == "linear_weight_grad") {
    return {{.in = {f32_of({1, 1}), f32_of({1, 1})}},
            {.in = {f32_of({7, 11, 131}), f32_of({7, 11, 17})}},
            {.in = {f32_of({1031, 257}), f32_of({1031, 129})}}};
  }
  if (op == "reduce_sum") return reduce_cases();
  if (op == "square_sum")
    return {{.in = {f32_of({1})}}, {.in = {f32_of({3, 20011})}}, {.in = {f32_of({0})}}};
  if (op == "cross_entropy") return label_cases(false);
  if (op == "cross_entropy_grad") return label_cases(true);
  if (op == "layer_norm") {
    const Attrs attrs = Attrs::of(NormAttrs{});
    return {{.in = {f32_of({1, 67}), f32_of({67}), f32_of({67})}, .attrs = attrs},
            {.in = {f32_of({131, 33}), f32_of({33}), f32_of({33})}, .attrs = attrs},
            {.in = {f32_of({5, 4099}), f32_of({4099}), f32_of({4099})}, .attrs = attrs}};
  }
  if (op == "conv2d") return conv_cases(ConvPass::kForward);
  if (op == "conv2d_grad_input") return conv_cases(ConvPass::kInput);
  if (op == "conv2d_grad_weight") return conv_cases(ConvPass::kWeight);
  if (op == "dropout") return dropout_cases();
  if (op == "transpose") return transpose_cases();
  if (op == "slice") {
    return {{.in = {f32_of({5, 37, 70})}, .attrs = Attrs::of(SliceAttrs{{1, 3, 0}, {3, 31, 70}})},
            {.in = {f32_of({5, 37, 70})}, .attrs = Attrs::of(SliceAttrs{{1, 3, 7}, {3, 31, 1}})}};
  }
  if (op == "split") {
    return {{.in = {f32_of({37, 15, 5})},
             .attrs = Attrs::of(SplitAttrs{.dim = 1, .sizes = {3, 1, 11}})},
            {.in = {f32_of({37, 4})}, .attrs = Attrs::of(SplitAttrs{.dim = 1, .sizes = {3, 1}})}};
  }
  if (op == "concat") {
    return {{.in = {f32_of({37, 3, 5}), f32_of({37, 1, 5}), f32_of({37, 11, 5})},
             .attrs = Attrs::of(ConcatAttrs{1})},
            {.in = {f32_of({37, 3}), f32_of({37, 1})}, .attrs = Attrs::of(ConcatAttrs{1})}};
  }
  if (op == "gelu") return unary_cases(-9, 9, Attrs::of(GeluAttrs{true}));
  if (op == "attention") return attention_cases(false);
  if (op == "attention_grad") return attention_cases(true);
  if (op == "layer_norm_grad") return norm_grad_cases();
  if (op == "embedding") {
    return {{.in = {f32_of({101, 37}), i64_of({3, 71})}, .fill = {{}, whole_numbers(0, 101)}}};
  }
  if (op == "embedding_grad") {
    return {{.in = {i64_of({3, 71}), f32_of({3, 71, 301})},
             .attrs = Attrs::of(EmbeddingGradAttrs{29}),
             .fill = {whole_numbers(0, 29)}}};
  }
  return {};
}

}  // namespace trireme
