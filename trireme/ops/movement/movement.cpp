#include "trireme/ops/movement/movement.h"

#include <cstring>

#include "trireme/base/said.h"

namespace trireme {

Walk walk_from(const Shape& tensor, const Shape& start) {
  Walk walk;
  walk.step = tensor.strides();
  for (int dim = 0; dim < tensor.rank(); ++dim) walk.first += start[dim] * walk.step[static_cast<size_t>(dim)];
  return walk;
}

void copy_box(const View& from, const Walk& from_walk, const View& to, const Walk& to_walk, const Shape& size) {
  const int64_t bytes = size_of(from.type.dtype);
  std::array<int64_t, Shape::kMaxRank> at{};
  int64_t f = from_walk.first;
  int64_t t = to_walk.first;
  for (int64_t left = size.elements(); left > 0; --left) {
    std::memcpy(to.data + t * bytes, from.data + f * bytes, static_cast<size_t>(bytes));
    for (int dim = size.rank() - 1; dim >= 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      f += from_walk.step[d];
      t += to_walk.step[d];
      if (++at[d] < size[dim]) break;
      f -= from_walk.step[d] * size[dim];
      t -= to_walk.step[d] * size[dim];
      at[d] = 0;
    }
  }
}

Shape origin(int rank) {
  Shape out;
  for (int dim = 0; dim < rank; ++dim) out.push_back(0);
  return out;
}

int settle_dim(std::string_view op, const TensorType& x, int64_t dim) {
  const int rank = x.shape.rank();
  require(dim >= -rank && dim < rank, "{}: no dimension {} in x {}; dimensions are {} to {}", op, dim, said(x), -rank,
          rank - 1);
  return static_cast<int>(dim < 0 ? dim + rank : dim);
}

}  // namespace trireme
