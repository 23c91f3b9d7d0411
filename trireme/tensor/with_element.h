// Calls a function for the type that a tensor's elements are stored as.
#pragma once

#include <string_view>

#include "trireme/base/error.h"
#include "trireme/tensor/dtype.h"

namespace trireme {

// Calls fn(T{}) with the type T that elements are stored as. Throws kUnsupported for f16, in which nothing is computed;
// `who` is named in the error.
template <class Fn>
void with_element(std::string_view who, DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32:
      return fn(float{});
    case DType::kF64:
      return fn(double{});
    case DType::kBF16:
      return fn(BFloat16{});
    case DType::kI8:
      return fn(int8_t{});
    case DType::kU8:
      return fn(uint8_t{});
    case DType::kI32:
      return fn(int32_t{});
    case DType::kI64:
      return fn(int64_t{});
    case DType::kBool:
      return fn(bool{});
    case DType::kF16:
      break;
  }
  fail(ErrorKind::kUnsupported, "{}: no arithmetic on {}; use f32 or bf16", who, to_string(dtype));
}

}  // namespace trireme
