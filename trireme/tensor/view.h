// View: bytes somewhere, read as a dense row-major tensor. It owns nothing.
#pragma once

#include <span>

#include "trireme/base/error.h"
#include "trireme/tensor/shape.h"

namespace trireme {

struct View {
  std::byte* data = nullptr;
  TensorType type;

  int64_t elements() const { return type.elements(); }
  int64_t bytes() const { return type.bytes(); }
  std::span<std::byte> raw() const { return {data, static_cast<size_t>(bytes())}; }

  // The elements; throws kInternal when T is not the view's element type.
  template <class T>
  std::span<T> as() const {
    invariant(type.dtype == dtype_of<std::remove_const_t<T>>, "view of {} read as {}", to_string(type),
              to_string(dtype_of<std::remove_const_t<T>>));
    return {reinterpret_cast<T*>(data), static_cast<size_t>(elements())};
  }
};

}  // namespace trireme
