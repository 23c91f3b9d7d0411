// Cases of elementwise ops and of softmax.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "trireme/backend/cpu/cases/case_types_for_tests.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"

namespace trireme {

inline std::vector<Example> binary_cases() {
  const std::vector<Fill> away = {{Fill::Kind::kUniform, -1, 1}, {Fill::Kind::kUniform, 0.5, 2}};
  return {{.in = {f32_of({1}), f32_of({1})}, .fill = away},
          {.in = {f32_of({17}), f32_of({17})}, .fill = away},
          {.in = {f32_of({5, 7001}), f32_of({5, 7001})}, .fill = away},
          {.in = {f32_of({257, 129}), f32_of({129})}, .fill = away},
          {.in = {f32_of({7, 1031, 6}), f32_of({6})}, .fill = away},  // short runs beside one
          {.in = {f32_of({301, 64}), f32_of({64})}, .fill = away},
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

inline std::vector<Example> compare_cases() {
  const Fill few = whole_numbers(-2, 3);
  std::vector<Example> cases;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI8, DType::kU8, DType::kI64}) {
    const auto on = [&](std::initializer_list<int64_t> a, std::initializer_list<int64_t> b) {
      const Fill fill = dtype == DType::kU8 ? whole_numbers(0, 3) : few;
      cases.push_back({.in = {{dtype, Shape(a)}, {dtype, Shape(b)}}, .fill = {fill, fill}});
    };
    on({5, 7001}, {5, 7001});
    on({257, 129}, {129});
    on({31, 33}, {31, 1});
    on({}, {40001});
  }
  return cases;
}

inline std::vector<Example> select_cases() {
  const TensorType flags{DType::kBool, {5, 7001}};
  const TensorType x = f32_of({5, 7001});
  const Fill bits = whole_numbers(0, 2);
  return {{.in = {flags, x, x}, .fill = {bits}},
          {.in = {flags, x, f32_of({})}, .fill = {bits}},
          {.in = {{DType::kBool, {1}}, x, x}, .fill = {bits}},
          {.in = {{DType::kBool, {7001}}, x, x}, .fill = {bits}}};
}

// Between any two types but f16; whole numbers that all of them hold.
inline std::vector<Example> cast_cases() {
  std::vector<Example> cases;
  const auto all = {DType::kF32, DType::kF64, DType::kBF16, DType::kI8,
                    DType::kU8,  DType::kI32, DType::kI64,  DType::kBool};
  for (const DType from : all) {
    for (const DType to : all) {
      const Attrs attrs = op("cast").parse_attrs(fmt::format("{{dtype={}}}", to_string(to)));
      cases.push_back({.in = {{from, {16401}}},
                       .attrs = attrs,
                       .fill = {from == DType::kBool ? whole_numbers(0, 2) : whole_numbers(0, 99)}});
    }
  }
  return cases;
}

inline std::vector<Example> elementwise_cases(std::string_view op) {
  const auto one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), op) != names.end();
  };
  if (one_of({"add", "sub", "mul", "div", "maximum", "minimum"})) return binary_cases();
  if (one_of({"relu_grad", "silu_grad", "softmax_grad", "log_softmax_grad"})) return pair_cases();
  if (one_of({"neg", "abs", "square", "tanh", "sigmoid", "erf", "relu", "silu", "sign", "sin", "cos"}))
    return unary_cases(-12, 12, Attrs());
  if (one_of({"sqrt", "rsqrt", "reciprocal", "log"})) return unary_cases(0.01, 100, Attrs());
  if (op == "exp") return unary_cases(-100, 3, Attrs());
  if (one_of({"softmax", "log_softmax"})) return unary_cases(-30, 30, Attrs());
  if (one_of({"scale", "add_scalar"})) return unary_cases(-9, 9, Attrs::of(ScalarAttrs{-0.3}));
  if (op == "pow_scalar") return unary_cases(0.1, 9, Attrs::of(ScalarAttrs{-0.3}));
  if (op == "clamp") return unary_cases(-9, 9, Attrs::of(ClampAttrs{-1, 2}));
  if (op == "gelu") return unary_cases(-9, 9, Attrs::of(GeluAttrs{true}));
  if (one_of({"equal", "less", "greater"})) return compare_cases();
  if (op == "select") return select_cases();
  if (op == "cast") return cast_cases();
  if (op == "huber") {
    std::vector<Example> cases = pair_cases();
    for (Example& e : cases) e.attrs = trireme::op("huber").parse_attrs("{delta=0.7}");
    return cases;
  }
  if (op == "pow") {
    std::vector<Example> cases = binary_cases();
    for (Example& e : cases) e.fill[0] = {Fill::Kind::kUniform, 0.1, 4};
    return cases;
  }
  return {};
}

}  // namespace trireme
