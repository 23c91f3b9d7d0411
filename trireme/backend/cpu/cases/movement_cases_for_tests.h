// Cases of ops that move elements.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/backend/cpu/cases/case_types_for_tests.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/structural.h"

namespace trireme {

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

inline std::vector<Example> movement_cases(std::string_view op) {
  if (op == "transpose") return transpose_cases();
  if (op == "slice") {
    return {{.in = {f32_of({5, 37, 70})}, .attrs = Attrs::of(SliceAttrs{{1, 3, 0}, {3, 31, 70}})},
            {.in = {f32_of({5, 37, 70})}, .attrs = Attrs::of(SliceAttrs{{1, 3, 7}, {3, 31, 1}})}};
  }
  if (op == "split") {
    return {{.in = {f32_of({37, 15, 5})}, .attrs = Attrs::of(SplitAttrs{.dim = 1, .sizes = {3, 1, 11}})},
            {.in = {f32_of({37, 4})}, .attrs = Attrs::of(SplitAttrs{.dim = 1, .sizes = {3, 1}})}};
  }
  if (op == "concat") {
    return {{.in = {f32_of({37, 3, 5}), f32_of({37, 1, 5}), f32_of({37, 11, 5})}, .attrs = Attrs::of(ConcatAttrs{1})},
            {.in = {f32_of({37, 3}), f32_of({37, 1})}, .attrs = Attrs::of(ConcatAttrs{1})}};
  }
  if (op == "pad") {
    const Attrs around = Attrs::of(PadAttrs{{2, 0, 3}, {1, 1, 0}, -1.5});
    return {{.in = {f32_of({37, 15, 5})}, .attrs = around},
            {.in = {{DType::kBool, {7, 33, 1}}}, .attrs = around},
            {.in = {{DType::kF64, {3, 5, 7}}}, .attrs = around},
            {.in = {f32_of({})}, .attrs = Attrs::of(PadAttrs{})},
            {.in = {f32_of({20003})}, .attrs = Attrs::of(PadAttrs{{17}, {1}})},
            {.in = {f32_of({0, 3})}, .attrs = Attrs::of(PadAttrs{{2, 0}, {1, 0}})}};
  }
  if (op == "full")
    return {{.in = {}, .attrs = Attrs::of(FullAttrs{DType::kBool, {16401}, 1})},
            {.in = {}, .attrs = Attrs::of(FullAttrs{DType::kBF16, {3, 16401}, -1.5})}};
  return {};
}

}  // namespace trireme
