// What reference kernels and examples share: a call by element type, arithmetic in double, and
// short names of types.
#pragma once

#include <string_view>

#include "trireme/base/error.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/op_def.h"

namespace trireme {

template <class T>
double load(T x) {
  return static_cast<double>(x);
}
inline double load(BFloat16 x) {
  return static_cast<double>(static_cast<float>(x));
}

template <class T>
T store(double x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// Calls fn(T{}) with the floating type T.
template <class Fn>
void with_floating(std::string_view op, DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32:
      return fn(float{});
    case DType::kF64:
      return fn(double{});
    case DType::kBF16:
      return fn(BFloat16{});
    default:
      fail(ErrorKind::kUnsupported, "{}: no kernel for {}; use f32, bf16 or f64", op, to_string(dtype));
  }
}

// Calls fn(T{}) with the type T of indices.
template <class Fn>
void with_index(std::string_view op, DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kI32:
      return fn(int32_t{});
    case DType::kI64:
      return fn(int64_t{});
    default:
      fail(ErrorKind::kUnsupported, "{}: no kernel for {} indices; use i32 or i64", op, to_string(dtype));
  }
}

// The type of statistics and losses of a tensor of this type: f32, or f64 for f64.
inline DType statistic_type(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

template <class T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

// A floating scalar's value, of whichever type it is.
inline double scalar(std::string_view op, const View& view) {
  double value = 0;
  with_floating(op, view.type.dtype, [&](auto zero) { value = load(view.as<decltype(zero)>()[0]); });
  return value;
}

// All dimensions but the last.
inline Shape leading(const Shape& shape) {
  return Shape(std::span<const int64_t>(shape.begin(), static_cast<size_t>(shape.rank() - 1)));
}

inline bool is_index(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kI64;
}

inline TensorType f32(std::initializer_list<int64_t> shape) {
  return {DType::kF32, Shape(shape)};
}
inline TensorType i32(std::initializer_list<int64_t> shape) {
  return {DType::kI32, Shape(shape)};
}
inline TensorType i64(std::initializer_list<int64_t> shape) {
  return {DType::kI64, Shape(shape)};
}

inline Fill integers(double low, double high) {
  return {Fill::Kind::kIntegers, low, high};
}
inline Fill uniform(double low, double high) {
  return {Fill::Kind::kUniform, low, high};
}
inline Fill distinct(double low, double high) {
  return {Fill::Kind::kDistinct, low, high};
}

}  // namespace trireme
