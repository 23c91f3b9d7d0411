#include "trireme/backend/cpu/elements/broadcast.h"

namespace trireme::cpu {
namespace {

struct CountedDim {
  int64_t size, a, b;
};

// Elements to step in an operand for dimension `dim` of the result: 0 where it is repeated.
int64_t broadcast_step(const Shape& operand, const Shape& result, int dim) {
  const int own = dim - (result.rank() - operand.rank());
  if (own < 0 || operand[own] == 1) return 0;
  return operand.strides()[static_cast<size_t>(own)];
}

}  // namespace

Runs runs_of(const Shape& a, const Shape& b, const Shape& result) {
  // Dimensions that both operands cross in equal steps are one; innermost first.
  std::array<CountedDim, Shape::kMaxRank> dims{};
  int count = 0;
  for (int dim = result.rank() - 1; dim >= 0; --dim) {
    if (result[dim] == 1) continue;
    const CountedDim next{result[dim], broadcast_step(a, result, dim), broadcast_step(b, result, dim)};
    if (count > 0) {
      CountedDim& inner = dims[static_cast<size_t>(count - 1)];
      if (next.a == inner.a * inner.size && next.b == inner.b * inner.size) {
        inner.size *= next.size;
        continue;
      }
    }
    dims[static_cast<size_t>(count++)] = next;
  }
  Runs runs;
  if (count == 0) return runs;
  runs.length = dims[0].size;
  runs.a_moves = dims[0].a != 0;
  runs.b_moves = dims[0].b != 0;
  runs.outer = count - 1;
  for (int i = 0; i < runs.outer; ++i) {
    const CountedDim& dim = dims[static_cast<size_t>(count - 1 - i)];
    const auto at = static_cast<size_t>(i);
    runs.size[at] = dim.size;
    runs.a_step[at] = dim.a;
    runs.b_step[at] = dim.b;
    runs.count *= dim.size;
  }
  return runs;
}

}  // namespace trireme::cpu
