// Operands that hold indices, i32 or i64.
#pragma once

#include "trireme/tensor/view.h"

namespace trireme::cpu {

class Indices {
 public:
  explicit Indices(const View& view)
      : wide_(view.type.dtype == DType::kI64 ? view.as<const int64_t>().data() : nullptr),
        narrow_(wide_ == nullptr ? view.as<const int32_t>().data() : nullptr),
        size_(view.elements()) {}
  int64_t operator[](int64_t i) const { return wide_ != nullptr ? wide_[i] : narrow_[i]; }
  int64_t size() const { return size_; }

 private:
  const int64_t* wide_;
  const int32_t* narrow_;
  int64_t size_;
};

}  // namespace trireme::cpu
