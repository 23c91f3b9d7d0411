// View: bytes somewhere, read as a dense row-major tensor. It owns nothing, and knows whether the host may touch them.
#pragma once

#include <span>

#include "trireme/base/error.h"
#include "trireme/tensor/shape.h"

namespace trireme {

// Who may touch bytes.
enum class Memory {
  kHost,    // the host's threads, and the device where it works in the host's memory
  kDevice,  // what runs on the device alone; to the host they are an address
  kDisk,    // nobody, where they lie: they are in a file, and have no address
};

struct View {
  std::byte* data = nullptr;
  TensorType type;
  Memory memory = Memory::kHost;

  int64_t elements() const { return type.elements(); }
  int64_t bytes() const { return type.bytes(); }
  // The bytes; throws kInvalidArgument for those of a device that the host cannot touch.
  std::span<std::byte> raw() const {
    require_host();
    return {data, static_cast<size_t>(bytes())};
  }
  // Others at the same place.
  View with(TensorType other) const { return {data, other, memory}; }

  void require_host() const {
    if (memory == Memory::kHost) [[likely]]
      return;
    refuse_host();
  }

  // The elements; throws kInternal when T is not the view's element type, kInvalidArgument as raw().
  template <class T>
  std::span<T> as() const {
    require_host();
    if (type.dtype != dtype_of<std::remove_const_t<T>>) [[unlikely]]
      refuse_type(dtype_of<std::remove_const_t<T>>);
    return {reinterpret_cast<T*>(data), static_cast<size_t>(elements())};
  }

 private:
  // Elements are asked for one at a time in places: the texts are made only where one is thrown.
  [[noreturn]] void refuse_host() const;
  [[noreturn]] void refuse_type(DType read) const;
};

}  // namespace trireme
