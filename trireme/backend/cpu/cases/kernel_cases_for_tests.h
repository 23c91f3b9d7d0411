// Cases on which kernels are compared with the reference, in addition to the examples of each op: sizes
// that are one, odd or prime, and longer than a vector, a tile or a task. For tests.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/backend/cpu/cases/elementwise_cases_for_tests.h"
#include "trireme/backend/cpu/cases/movement_cases_for_tests.h"
#include "trireme/backend/cpu/cases/row_cases_for_tests.h"
#include "trireme/backend/cpu/cases/window_cases_for_tests.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"

namespace trireme {

inline std::vector<Example> matmul_cases() {
  std::vector<Example> cases;
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      const Attrs attrs = Attrs::of(MatMulAttrs{ta, tb});
      const auto add = [&](int64_t m, int64_t n, int64_t k) {
        cases.push_back(
            {.in = {ta ? f32_of({k, m}) : f32_of({m, k}), tb ? f32_of({n, k}) : f32_of({k, n})}, .attrs = attrs});
        cases.push_back({.in = {ta ? f32_of({3, k, m}) : f32_of({3, m, k}), tb ? f32_of({3, n, k}) : f32_of({3, k, n})},
                         .attrs = attrs});
      };
      add(1, 1, 1);
      add(0, 5, 3);
      add(4, 0, 3);
      add(4, 5, 0);
      add(37, 1, 65);
      add(1, 53, 17);
      add(129, 67, 31);
      add(1, 301, 77);
      add(70, 103, 650);
    }
  }
  // Cut into blocks: along the terms, the rows, the rows and the columns.
  cases.push_back({.in = {f32_of({67, 2081}), f32_of({2081, 1031})}, .attrs = Attrs::of(MatMulAttrs{})});
  cases.push_back({.in = {f32_of({131, 2053}), f32_of({517, 131})}, .attrs = Attrs::of(MatMulAttrs{true, true})});
  cases.push_back({.in = {f32_of({523, 411}), f32_of({411, 1033})}, .attrs = Attrs::of(MatMulAttrs{})});
  cases.push_back({.in = {f32_of({2, 3, 7}), f32_of({7, 5})}, .attrs = Attrs::of(MatMulAttrs{})});
  return cases;
}

inline std::vector<Example> update_cases(std::vector<TensorType> scalars, int tensors, Attrs attrs) {
  std::vector<Example> cases;
  for (const int64_t size : {1, 77, 33001}) {
    Example e{.in = std::vector<TensorType>(static_cast<size_t>(tensors), f32_of({size})),
              .attrs = attrs,
              .fill = std::vector<Fill>(static_cast<size_t>(tensors))};
    e.fill.back() = {Fill::Kind::kUniform, 0.1, 1};  // a second moment, where there is one
    for (const TensorType& scalar : scalars) {
      e.in.push_back(scalar);
      e.fill.push_back(scalar.dtype == DType::kI64 ? whole_numbers(1, 9) : Fill{Fill::Kind::kUniform, 0.1, 0.9});
    }
    cases.push_back(std::move(e));
  }
  return cases;
}

inline std::vector<Example> optimizer_cases(std::string_view op) {
  if (op == "adam_update") {
    return update_cases({f32_of({}), i64_of({}), f32_of({})}, 4, Attrs::of(AdamAttrs{.weight_decay = 0.1}));
  }
  if (op == "lamb_direction")
    return update_cases({i64_of({}), f32_of({})}, 4, Attrs::of(AdamAttrs{.weight_decay = 0.1}));
  if (op == "lamb_apply") return update_cases({f32_of({}), f32_of({}), f32_of({})}, 2, Attrs());
  if (op == "sgd_update") {
    return update_cases({f32_of({}), i64_of({}), f32_of({})}, 3,
                        Attrs::of(SgdAttrs{.weight_decay = 0.1, .nesterov = true}));
  }
  if (op == "sgd_plain_update") return update_cases({f32_of({}), f32_of({})}, 2, Attrs::of(SgdPlainAttrs{0.1}));
  return {};
}

inline std::vector<Example> dropout_cases() {
  const auto on = [](TensorType x, double p) {
    return Example{.in = {x, i64_of({})}, .attrs = Attrs::of(DropoutAttrs{p, 3, 5}), .fill = {{}, whole_numbers(1, 9)}};
  };
  return {on(f32_of({1}), 0.5), on(f32_of({3, 5, 7}), 0.9), on(f32_of({7, 4099}), 0.1), on(f32_of({65}), 0)};
}

inline std::vector<Example> product_cases(std::string_view op) {
  if (op == "matmul") return matmul_cases();
  if (op == "linear_weight_grad") {
    return {{.in = {f32_of({1, 1}), f32_of({1, 1})}},
            {.in = {f32_of({0, 5}), f32_of({0, 7})}},
            {.in = {f32_of({3, 0}), f32_of({3, 7})}},
            {.in = {f32_of({7, 11, 131}), f32_of({7, 11, 17})}},
            {.in = {f32_of({1031, 257}), f32_of({1031, 129})}},
            {.in = {f32_of({2, 1039, 257}), f32_of({2, 1039, 263})}},  // cut along the terms
            {.in = {f32_of({2318, 257}), f32_of({2318, 263})}}};       // and the last of them packs more at once
  }
  if (op == "linear_weight_grad_onto") {
    return {{.in = {f32_of({1, 1}), f32_of({1, 1}), f32_of({1, 1})}},
            {.in = {f32_of({0, 5}), f32_of({0, 7}), f32_of({5, 7})}},
            {.in = {f32_of({7, 11, 131}), f32_of({7, 11, 17}), f32_of({131, 17})}},
            {.in = {f32_of({1031, 257}), f32_of({1031, 129}), f32_of({257, 129})}},
            {.in = {f32_of({3, 77, 131}), f32_of({3, 77, 3, 17}), f32_of({131, 3, 17})}},
            {.in = {f32_of({2079, 257}), f32_of({2079, 263}), f32_of({257, 263})}}};  // cut along the terms
  }
  if (op == "multi_linear") return {{.in = {f32_of({2, 71, 33}), f32_of({33, 3, 41})}}};
  if (op == "multi_linear_input_grad") return {{.in = {f32_of({2, 71, 3, 41}), f32_of({97, 3, 41})}}};
  if (op == "multi_linear_weight_grad") return {{.in = {f32_of({2, 71, 33}), f32_of({2, 71, 3, 41})}}};
  return {};
}

// Of ops that know the place of a token.
inline std::vector<Example> position_cases(std::string_view op) {
  if (op == "rotary") {
    return {{.in = {f32_of({1, 1, 1, 2})}, .attrs = Attrs::of(RotaryAttrs{})},
            {.in = {f32_of({3, 37, 5, 34})}, .attrs = Attrs::of(RotaryAttrs{.theta = 500000})},
            {.in = {f32_of({2, 301, 2, 64})}, .attrs = Attrs::of(RotaryAttrs{.inverse = true})}};
  }
  if (op == "rotary_at") {
    return {{.in = {f32_of({3, 37, 5, 34}), i64_of({})},
             .attrs = Attrs::of(RotaryAttrs{.theta = 500000}),
             .fill = {{}, whole_numbers(0, 4096)}},
            {.in = {f32_of({1, 1, 1, 2}), i64_of({})},
             .attrs = Attrs::of(RotaryAttrs{.inverse = true}),
             .fill = {{}, whole_numbers(0, 2)}}};
  }
  if (op == "cached_attention") {
    const auto of = [](TensorType q, TensorType k, TensorType keys, double most) {
      return Example{.in = {q, k, k, keys, keys, i64_of({})}, .fill = {{}, {}, {}, {}, {}, whole_numbers(0, most)}};
    };
    return {of(f32_of({1, 1, 8, 64}), f32_of({1, 1, 2, 64}), f32_of({1, 301, 2, 64}), 301),
            of(f32_of({2, 3, 4, 17}), f32_of({2, 3, 4, 17}), f32_of({2, 37, 4, 17}), 35),
            of(f32_of({1, 16, 4, 8}), f32_of({1, 16, 4, 8}), f32_of({1, 16, 4, 8}), 1),
            of(f32_of({2, 70, 6, 17}), f32_of({2, 70, 3, 17}), f32_of({2, 371, 3, 17}), 302),
            of(f32_of({1, 1, 1, 1}), f32_of({1, 1, 1, 1}), f32_of({1, 1, 1, 1}), 1)};
  }
  return {};
}

// Of ops that choose rows by their numbers.
inline std::vector<Example> table_cases(std::string_view op) {
  if (op == "one_hot") {
    return {{.in = {i64_of({301})},
             .attrs = trireme::op("one_hot").parse_attrs("{depth=67}"),
             .fill = {whole_numbers(-2, 70)}}};
  }
  if (op == "embedding") {
    return {{.in = {f32_of({101, 37}), i64_of({3, 71})}, .fill = {{}, whole_numbers(0, 101)}}};
  }
  if (op == "gather_rows") {
    return {{.in = {f32_of({3, 37, 131}), i64_of({3, 71})}, .fill = {{}, whole_numbers(0, 37)}}};
  }
  if (op == "scatter_rows") {
    return {{.in = {i64_of({3, 71}), f32_of({3, 71, 131})},
             .attrs = Attrs::of(ScatterRowsAttrs{37}),
             .fill = {whole_numbers(0, 37)}}};
  }
  if (op == "embedding_grad") {
    return {{.in = {i64_of({3, 71}), f32_of({3, 71, 301})},
             .attrs = Attrs::of(EmbeddingGradAttrs{29}),
             .fill = {whole_numbers(0, 29)}},
            {.in = {i64_of({41}), f32_of({41, 1031})},
             .attrs = Attrs::of(EmbeddingGradAttrs{999}),
             .fill = {whole_numbers(0, 999)}}};
  }
  if (op == "embedding_grad_rows") {
    return {{.in = {i64_of({3, 71}), f32_of({3, 71, 301})},
             .attrs = Attrs::of(EmbeddingGradRowsAttrs{29, 29}),
             .fill = {whole_numbers(0, 29)}},
            {.in = {i64_of({41}), f32_of({41, 1031})},
             .attrs = Attrs::of(EmbeddingGradRowsAttrs{999, 41}),
             .fill = {whole_numbers(0, 999)}}};
  }
  if (op == "take_rows") return {{.in = {f32_of({101, 37}), i64_of({71})}, .fill = {{}, whole_numbers(-1, 101)}}};
  if (op == "put_rows" || op == "add_rows") {
    return {{.in = {f32_of({301, 37}), i64_of({71}), f32_of({71, 37})}, .fill = {{}, {Fill::Kind::kDistinct, 0, 301}}}};
  }
  if (op == "merge_rows") {
    return {{.in = {i64_of({71}), f32_of({71, 37})},
             .attrs = Attrs::of(MergeRowsAttrs{1, 71}),
             .fill = {whole_numbers(-1, 101)}},
            {.in = {i64_of({63}), f32_of({63, 613})},
             .attrs = Attrs::of(MergeRowsAttrs{7, 63}),
             .fill = {whole_numbers(-1, 29)}},
            {.in = {i64_of({41}), f32_of({41, 7}), i64_of({3}), f32_of({3, 7})},
             .attrs = Attrs::of(MergeRowsAttrs{1, 44}),
             .fill = {whole_numbers(-1, 999), {}, whole_numbers(-1, 999)}}};
  }
  return {};
}

inline std::vector<Example> more_cases(std::string_view op) {
  for (auto* cases : {elementwise_cases, movement_cases, row_cases, window_cases, optimizer_cases, product_cases,
                      position_cases, table_cases}) {
    std::vector<Example> found = cases(op);
    if (!found.empty()) return found;
  }
  if (op == "dropout") return dropout_cases();
  return {};
}

// Whether an operand stays f32 where an op's tensors are bf16: statistics, losses and numbers of an
// update.
inline bool stays_f32(std::string_view op, size_t operand, const TensorType& type) {
  if (op == "layer_norm" || op == "rms_norm") return operand > 0;
  if (op == "layer_norm_grad") return operand > 0 && operand < 4;
  if (op == "rms_norm_grad") return operand == 1 || operand == 2;
  if (op == "batch_norm") return operand > 0 && operand < 5;
  if (op == "batch_norm_sums" || op == "batch_norm_grad")
    return operand > 1 && operand != (op == "batch_norm_sums" ? 6 : 0);
  if (op == "batch_statistics") return true;
  if (op == "cross_entropy_grad" || op == "linear_weight_grad_onto") return operand == 2;
  if (op == "attention_grad") return operand == 4;
  if (op == "attention_merge") return operand == 1 || operand == 3;
  if (op == "exact_square_sum") return true;
  const bool update = op.ends_with("_update") || op.starts_with("lamb_");
  return update && type.shape.rank() == 0;
}

// The case on bf16 tensors; nothing when it has none of f32.
inline std::optional<Example> in_bf16(std::string_view op, Example example) {
  if (op == "fused_rows") return std::nullopt;  // its steps say what is rounded between them
  bool changed = false;
  for (size_t i = 0; i < example.in.size(); ++i) {
    TensorType& type = example.in[i];
    if (type.dtype != DType::kF32 || stays_f32(op, i, type)) continue;
    type.dtype = DType::kBF16;
    changed = true;
  }
  if (!changed) return std::nullopt;
  return example;
}

}  // namespace trireme
