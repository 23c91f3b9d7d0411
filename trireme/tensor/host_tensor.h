// HostTensor: a dense row-major tensor that owns its bytes (64-byte aligned, zeroed).
#pragma once

#include <memory>
#include <vector>

#include "trireme/tensor/view.h"

namespace trireme {

class HostTensor {
 public:
  HostTensor() = default;
  explicit HostTensor(TensorType type);

  template <class T>
  static HostTensor of(Shape shape, std::span<const T> values) {
    HostTensor out(TensorType{dtype_of<T>, shape});
    require(static_cast<int64_t>(values.size()) == shape.elements(), "{} values for a tensor of {} elements",
            values.size(), shape.elements());
    std::copy(values.begin(), values.end(), out.as<T>().begin());
    return out;
  }
  template <class T>
  static HostTensor of(Shape shape, const std::vector<T>& values) {
    return of<T>(shape, std::span<const T>(values));
  }

  const TensorType& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  View view() const { return {data_.get(), type_}; }
  template <class T>
  std::span<T> as() const {
    return view().as<T>();
  }
  HostTensor clone() const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  TensorType type_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace trireme
