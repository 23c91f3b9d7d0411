// Short names for the types and fills of test cases.
#pragma once

#include <initializer_list>

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

}  // namespace trireme
