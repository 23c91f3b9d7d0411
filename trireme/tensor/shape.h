// Shape: the sizes of a tensor's dimensions, outermost first; at most 8. TensorType: element type and
// shape, printed as f32[4,8].
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "trireme/tensor/dtype.h"

namespace trireme {

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  int64_t operator[](int dim) const { return sizes_[static_cast<size_t>(dim)]; }
  int64_t& operator[](int dim) { return sizes_[static_cast<size_t>(dim)]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }
  int64_t elements() const {  // product of the sizes; 1 for a scalar
    int64_t out = 1;
    for (const int64_t size : *this) out *= size;
    return out;
  }
  void push_back(int64_t size);  // throws kInvalidArgument past kMaxRank and 2^58 elements

  // Row-major strides, in elements.
  std::array<int64_t, kMaxRank> strides() const;

  friend bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

std::string to_string(const Shape& shape);  // "[4,8]"
inline size_t hash(const Shape& shape) {
  uint64_t out = static_cast<uint64_t>(shape.rank());
  for (const int64_t size : shape) out = (out ^ static_cast<uint64_t>(size)) * 0x9e3779b97f4a7c15U;
  return static_cast<size_t>(out ^ out >> 32U);
}

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

std::string to_string(const TensorType& type);  // "f32[4,8]"
inline size_t hash(const TensorType& type) {
  return hash(type.shape) * 31 + static_cast<size_t>(type.dtype);
}
// Reads what to_string wrote; throws kInvalidArgument on anything else.
TensorType parse_tensor_type(std::string_view text);

}  // namespace trireme
