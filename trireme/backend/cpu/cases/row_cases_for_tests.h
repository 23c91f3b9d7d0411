// Cases of reductions, normalisation, losses and attention.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "trireme/backend/cpu/cases/case_types_for_tests.h"
#include "trireme/op/op_attrs.h"

namespace trireme {

inline std::vector<Example> reduce_cases(bool extremes) {
  std::vector<Example> cases;
  const auto over = [&](TensorType x, std::vector<int64_t> dims, bool keep = false) {
    cases.push_back({.in = {x}, .attrs = Attrs::of(ReduceAttrs{std::move(dims), keep})});
  };
  over(f32_of({1000, 37}), {0});
  over(f32_of({1000, 37}), {1});
  over(f32_of({40001}), {0});
  over(f32_of({3, 700, 5}), {1}, true);
  over(f32_of({7, 11, 13}), {0, 1});
  over(f32_of({7, 11, 13}), {1, 2});
  over(f32_of({7, 11, 13}), {0, 2});
  over(f32_of({1, 5, 1, 3}), {0, 2});
  over(f32_of({2, 3}), {0, 1}, true);
  // Narrow rows, more of them than a part and fewer than are taken together; wide rows.
  over(f32_of({9001, 6}), {0});
  over(f32_of({501, 3, 2}), {1});
  over(f32_of({300, 1031}), {0});
  over(f32_of({5, 0}), {0});
  if (!extremes) over(f32_of({0, 5}), {0});
  return cases;
}

inline std::vector<Example> argmax_cases() {
  const auto on = [](TensorType x, int64_t dim, Fill fill = {}) {
    return Example{.in = {x}, .attrs = Attrs::of(ArgmaxAttrs{dim}), .fill = {fill}};
  };
  return {on(f32_of({1}), 0), on(f32_of({301, 67}), 1), on(f32_of({301, 67}), 0), on(f32_of({3, 20, 517}), 1),
          on(f32_of({300, 67}), 1, whole_numbers(0, 4))};
}

inline std::vector<Example> cumsum_cases() {
  const auto on = [](TensorType x, CumsumAttrs attrs) { return Example{.in = {x}, .attrs = Attrs::of(attrs)}; };
  return {on(f32_of({301, 67}), {1}), on(f32_of({301, 67}), {0, true}), on(f32_of({3, 20, 517}), {1, true})};
}

inline std::vector<Example> label_cases(bool gradient) {
  const auto on = [&](int64_t rows, int64_t classes, CrossEntropyAttrs attrs) {
    Example e{.in = {f32_of({rows, classes}), i64_of({rows})},
              .attrs = Attrs::of(attrs),
              .fill = {{Fill::Kind::kUniform, -9, 9}, whole_numbers(0, static_cast<double>(classes))}};
    if (gradient) e.in.push_back(f32_of({rows}));
    return e;
  };
  return {on(1, 1, {}), on(13, 37, {}), on(5, 20011, {}), on(33, 65, {.ignore_index = 3, .label_smoothing = 0.1})};
}

// With a mean for layer_norm, without for rms_norm.
inline std::vector<Example> norm_grad_cases(bool mean) {
  const auto on = [&](int64_t rows, int64_t size) {
    const TensorType x = f32_of({rows, size});
    std::vector<TensorType> in{x, f32_of({size}), f32_of({rows}), x};
    if (mean) in.insert(in.begin() + 2, f32_of({rows}));
    return Example{.in = std::move(in)};
  };
  return {on(1, 1), on(1, 67), on(131, 33), on(67, 256)};
}

// With a beta for layer_norm, without for rms_norm.
inline std::vector<Example> norm_cases(bool beta) {
  const auto on = [&](int64_t rows, int64_t size) {
    std::vector<TensorType> in{f32_of({rows, size}), f32_of({size})};
    if (beta) in.push_back(f32_of({size}));
    return Example{.in = std::move(in), .attrs = Attrs::of(NormAttrs{})};
  };
  return {on(1, 67), on(131, 33), on(5, 4099)};
}

// One tile and several of both kinds, shared key heads, one query, rests, and a mask beside none.
inline std::vector<Example> attention_merge_cases() {
  const TensorType out = f32_of({2, 33, 3, 5});
  const TensorType lse = f32_of({2, 3, 33});
  return {{.in = {out, lse, out, lse}, .fill = {{}, {Fill::Kind::kUniform, -30, 30}}}};
}

inline std::vector<Example> attention_cases(bool gradient) {
  std::vector<Example> cases;
  const auto add = [&](Shape q, int64_t t, int64_t g, bool causal) {
    const TensorType query{DType::kF32, q};
    const TensorType key = f32_of({q[0], t, g, q[3]});
    Example e{.in = {query, key, key}, .attrs = Attrs::of(AttentionAttrs{causal, causal ? 0.3 : 0})};
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
    add({1, 131, 2, 48}, 201, 1, causal);
    add({2, 1, 4, 5}, 300, 4, causal);
    add({1, 3, 2, 300}, 5, 1, causal);
  }
  return cases;
}

// Channels that fill no vector, some, and rests of one; few rows and many parts of them. Nothing lies near relu's kink.
inline std::vector<Example> batch_norm_cases(std::string_view op) {
  std::vector<Example> cases;
  const Fill uniform{};
  const Fill one{Fill::Kind::kUniform, 0.5, 2};
  const Fill half{Fill::Kind::kUniform, 0.5, 0.5};
  const auto add = [&](Shape shape, BatchNormAttrs attrs, bool residual) {
    const TensorType x{DType::kF32, shape};
    const TensorType c = f32_of({shape[shape.rank() - 1]});
    Example e{.in = {x, c, c, c, c}, .attrs = Attrs::of(attrs)};
    e.fill = {whole_numbers(-3, 4), one, {Fill::Kind::kUniform, 0, 0}, half, one};
    if (op != "batch_norm") {
      e.in.insert(e.in.begin() + 1, x);
      e.fill.insert(e.fill.begin() + 1, uniform);
    }
    if (op == "batch_norm_grad") e.in.insert(e.in.end(), {c, c});
    if (residual) {
      e.in.push_back(x);
      e.fill.push_back(op == "batch_norm" ? half : whole_numbers(-1, 2));
    }
    cases.push_back(std::move(e));
  };
  for (const bool residual : {false, true}) {
    if (residual && op == "batch_norm_grad") continue;
    add({1, 1}, {}, residual);
    add({2, 3, 5, 67}, {.relu = !residual || op == "batch_norm"}, residual);
    add({3, 33, 16}, {.count = 99}, residual);
    add({2001, 35}, {.count = 2001, .relu = op == "batch_norm"}, residual);
  }
  return cases;
}

// Products with what stands before and after them: one row, no terms, tails of blocks, tiles and panels, a matrix that
// is packed in several parts, rows of several dimensions, results between the steps, and two products.
inline std::vector<Example> fused_rows_cases() {
  std::vector<Example> cases;
  const auto add = [&](std::vector<TensorType> in, int64_t row_dims, const char* steps, std::vector<int64_t> results) {
    cases.push_back({.in = std::move(in), .attrs = Attrs::of(FusedRowsAttrs{row_dims, steps, std::move(results)})});
  };
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                {3, 5, 0},
                                {53, 17, 31},
                                {257, 67, 401},
                                {43, 1031, 9},
                                {1025, 33, 5},
                                {2049, 3, 7}}) {
    add({f32_of({m, k}), f32_of({k, n}), f32_of({n})}, 1,
        "3=matmul(0,1){transpose_a=false, transpose_b=false}; 4=add(3,2){}; 5=gelu(4){approximate=true}", {4, 5});
    add({f32_of({m, k}), f32_of({n, k}), f32_of({m, n})}, 1,
        "3=matmul(0,1){transpose_a=false, transpose_b=true}; 4=mul(3,2){}", {4});
  }
  add({f32_of({300, 33}), f32_of({33, 70}), f32_of({70}), f32_of({300, 70})}, 1,
      "4=scale(0){value=0.5}; 5=matmul(4,1){transpose_a=false, transpose_b=false}; 6=add(5,2){}; 7=add(3,6){}; "
      "8,9,10=layer_norm(7,2,2){eps=1e-05}",
      {4, 7, 8, 9, 10});
  add({f32_of({2, 131, 37}), f32_of({37, 3, 20}), f32_of({3, 20})}, 2,
      "3=multi_linear(0,1){}; 4=add(3,2){}; 5,6,7=split(4){dim=2, sizes=[1,1,1]}", {5, 6, 7});
  add({f32_of({2, 131, 3, 20}), f32_of({37, 3, 20}), f32_of({2, 131, 37})}, 2,
      "3=multi_linear_input_grad(0,1){}; 4=add(3,2){}", {3, 4});
  add({f32_of({530, 40}), f32_of({40, 90}), f32_of({90, 40})}, 1,
      "3=matmul(0,1){transpose_a=false, transpose_b=false}; 4=gelu(3){approximate=true}; "
      "5=matmul(4,2){transpose_a=false, transpose_b=false}; 6=add(5,0){}",
      {3, 6});
  return cases;
}

inline std::vector<Example> row_cases(std::string_view op) {
  if (op == "reduce_sum") return reduce_cases(false);
  if (op == "reduce_max" || op == "reduce_min") return reduce_cases(true);
  if (op == "argmax") return argmax_cases();
  if (op == "cumsum") return cumsum_cases();
  if (op == "square_sum") return {{.in = {f32_of({1})}}, {.in = {f32_of({3, 20011})}}, {.in = {f32_of({0})}}};
  if (op == "cross_entropy") return label_cases(false);
  if (op == "cross_entropy_grad") return label_cases(true);
  if (op == "layer_norm" || op == "rms_norm") return norm_cases(op == "layer_norm");
  if (op == "layer_norm_grad" || op == "rms_norm_grad") return norm_grad_cases(op == "layer_norm_grad");
  if (op.starts_with("batch_norm")) return batch_norm_cases(op);
  if (op == "channel_sums")
    return {{.in = {f32_of({1, 1})}}, {.in = {f32_of({2001, 35})}}, {.in = {f32_of({3, 7, 5, 64})}}};
  if (op == "attention") return attention_cases(false);
  if (op == "attention_merge") return attention_merge_cases();
  if (op == "attention_grad") return attention_cases(true);
  if (op == "fused_rows") return fused_rows_cases();
  return {};
}

}  // namespace trireme
