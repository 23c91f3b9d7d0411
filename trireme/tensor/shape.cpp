#include "trireme/tensor/shape.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/said.h"
#include "trireme/tensor/most_elements.h"

namespace trireme {

Shape::Shape(std::initializer_list<int64_t> sizes) : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) {
  for (int64_t size : sizes) push_back(size);
}

void Shape::push_back(int64_t size) {
  require(rank_ < kMaxRank, "shape: more than {} dimensions", +kMaxRank);
  require(size >= 0, "shape: dimension {} has size {}; sizes must be 0 or more", rank_, size);
  int64_t most = kMostElements;  // of this dimension; a dimension of none leaves the others their bound
  for (const int64_t other : *this) most /= std::max<int64_t>(other, 1);
  require(size <= most, "shape: {} with a dimension of {} more has more than 2^58 elements", said(*this), size);
  sizes_[static_cast<size_t>(rank_++)] = size;
}

std::array<int64_t, Shape::kMaxRank> Shape::strides() const {
  std::array<int64_t, kMaxRank> out{};
  int64_t stride = 1;
  for (int dim = rank_ - 1; dim >= 0; --dim) {
    out[static_cast<size_t>(dim)] = stride;
    stride *= (*this)[dim];
  }
  return out;
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (int dim = 0; dim < shape.rank(); ++dim) {
    if (dim > 0) out += ',';
    out += std::to_string(shape[dim]);
  }
  return out + "]";
}

std::string to_string(const TensorType& type) {
  return std::string(to_string(type.dtype)) + to_string(type.shape);
}

TensorType parse_tensor_type(std::string_view text) {
  const size_t open = text.find('[');
  require(open != std::string_view::npos && text.back() == ']',
          "'{}' is not a tensor type; expected something like f32[4,8]", text);
  const auto dtype = parse_dtype(text.substr(0, open));
  require(dtype.has_value(), "'{}' is not an element type (in '{}')", text.substr(0, open), text);
  TensorType type{*dtype, {}};
  const char* at = text.data() + open + 1;
  const char* end = text.data() + text.size() - 1;
  while (at < end) {
    int64_t size = 0;
    const auto [next, status] = std::from_chars(at, end, size);
    require(status == std::errc() && size >= 0, "'{}' is not a tensor type: bad size", text);
    type.shape.push_back(size);
    at = next;
    if (at < end) {
      require(*at == ',' && at + 1 < end, "'{}' is not a tensor type: expected ','", text);
      ++at;
    }
  }
  return type;
}

}  // namespace trireme
