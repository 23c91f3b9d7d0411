// What the elementwise families share: arithmetic in a wide type, and numpy's broadcasting (shapes
// aligned at the last dimension, missing dimensions and those of size 1 repeated) without making
// the repeated tensor.
#pragma once

#include <array>
#include <type_traits>

#include "trireme/ops/reference.h"

namespace trireme {

// Calls fn(T{}) with the type T of numbers that are computed with.
template <class Fn>
void with_number(std::string_view op, DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32:
      return fn(float{});
    case DType::kF64:
      return fn(double{});
    case DType::kBF16:
      return fn(BFloat16{});
    case DType::kI32:
      return fn(int32_t{});
    case DType::kI64:
      return fn(int64_t{});
    default:
      fail(ErrorKind::kUnsupported, "{}: no kernel for {}; use f32, bf16, f64, i32 or i64", op, to_string(dtype));
  }
}

// Arithmetic is done in double or int64_t and rounded once.
template <class T>
using Wide = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

template <class T>
Wide<T> widen(T x) {
  if constexpr (std::is_integral_v<T>) {
    return x;
  } else {
    return load(x);
  }
}

template <class T>
T narrow(Wide<T> x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    return store<T>(x);
  }
}

inline bool is_number(DType dtype) {
  return is_floating(dtype) || is_index(dtype);
}

// The shape that all operands broadcast to; throws kInvalidArgument naming the first sizes that
// differ.
Shape broadcast_shape(std::string_view op, std::span<const TensorType> in);
// Every dimension may be cut in the operands that have it whole.
ShardingRule broadcast_rule(const TypeArgs& args, std::vector<std::vector<int>> linear);
// Elements to step in an operand for each dimension of the result: 0 where the operand is repeated.
std::array<int64_t, Shape::kMaxRank> broadcast_strides(const Shape& operand, const Shape& result);

// Walks the elements of a result in order and knows which element of each of N operands belongs to
// it.
template <size_t N>
class BroadcastWalk {
 public:
  BroadcastWalk(const Shape& result, const std::array<const Shape*, N>& operands) : shape_(result) {
    for (size_t i = 0; i < N; ++i) strides_[i] = broadcast_strides(*operands[i], result);
  }
  size_t operator[](size_t operand) const { return static_cast<size_t>(offsets_[operand]); }
  void next() {
    for (int dim = shape_.rank() - 1; dim >= 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      const bool wraps = ++at_[d] == shape_[dim];
      for (size_t i = 0; i < N; ++i) {
        offsets_[i] += wraps ? -strides_[i][d] * (shape_[dim] - 1) : strides_[i][d];
      }
      if (!wraps) return;
      at_[d] = 0;
    }
  }

 private:
  Shape shape_;
  std::array<std::array<int64_t, Shape::kMaxRank>, N> strides_{};
  std::array<int64_t, N> offsets_{};
  std::array<int64_t, Shape::kMaxRank> at_{};
};

}  // namespace trireme
