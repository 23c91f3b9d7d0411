// Two operands broadcast to one result, seen as runs: innermost stretches in which each operand
// either advances by one element or stands still.
#pragma once

#include <array>
#include <cstdint>

#include "trireme/tensor/shape.h"

namespace trireme::cpu {

struct Runs {
  int64_t length = 1;  // elements of a run
  int64_t count = 1;   // runs of the result
  bool a_moves = true;
  bool b_moves = true;
  // Outer dimensions, outermost first: their sizes and the elements that each operand steps in
  // them.
  int outer = 0;
  std::array<int64_t, Shape::kMaxRank> size{}, a_step{}, b_step{};

  struct Offsets {
    int64_t a = 0, b = 0;
  };
  Offsets offsets(int64_t run) const {
    Offsets at;
    for (int dim = outer - 1; dim >= 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      at.a += run % size[d] * a_step[d];
      at.b += run % size[d] * b_step[d];
      run /= size[d];
    }
    return at;
  }
};

Runs runs_of(const Shape& a, const Shape& b, const Shape& result);

}  // namespace trireme::cpu
