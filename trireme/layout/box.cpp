#include "trireme/layout/box.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme {

Box Box::whole(const Shape& shape) {
  Box out{shape, shape};
  for (int dim = 0; dim < shape.rank(); ++dim) out.start[dim] = 0;
  return out;
}

std::string to_string(const Box& box) {
  std::string out = "[";
  for (int dim = 0; dim < box.size.rank(); ++dim) {
    out +=
        fmt::format("{}{}:{}", dim > 0 ? "," : "", box.start[dim], box.start[dim] + box.size[dim]);
  }
  return out + "]";
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  invariant(a.size.rank() == b.size.rank(), "boxes {} and {} differ in rank", to_string(a),
            to_string(b));
  Box out = a;
  for (int dim = 0; dim < a.size.rank(); ++dim) {
    const int64_t from = std::max(a.start[dim], b.start[dim]);
    const int64_t to = std::min(a.start[dim] + a.size[dim], b.start[dim] + b.size[dim]);
    if (from >= to) return std::nullopt;
    out.start[dim] = from;
    out.size[dim] = to - from;
  }
  return out;
}

void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                 const Box& region) {
  const int rank = region.size.rank();
  invariant(from.type.dtype == to.type.dtype, "copy_region between {} and {}",
            to_string(from.type.dtype), to_string(to.type.dtype));
  invariant(region.elements() == 0 ||
                (intersect(from_box, region) == region && intersect(to_box, region) == region),
            "region {} is not inside {} and {}", to_string(region), to_string(from_box),
            to_string(to_box));
  if (region.elements() == 0) return;

  const auto from_strides = from_box.size.strides();
  const auto to_strides = to_box.size.strides();
  const int64_t element = size_of(from.type.dtype);
  int64_t from_at = 0;
  int64_t to_at = 0;
  for (int dim = 0; dim < rank; ++dim) {
    from_at += (region.start[dim] - from_box.start[dim]) * from_strides[static_cast<size_t>(dim)];
    to_at += (region.start[dim] - to_box.start[dim]) * to_strides[static_cast<size_t>(dim)];
  }
  // The innermost dimensions that are contiguous on both sides are one run.
  int64_t run = 1;
  int outer = rank;
  while (outer > 0) {
    run *= region.size[outer - 1];
    --outer;
    if (region.size[outer] != from_box.size[outer] || region.size[outer] != to_box.size[outer])
      break;
  }
  std::array<int64_t, Shape::kMaxRank> index{};
  while (true) {
    std::memcpy(to.data + to_at * element, from.data + from_at * element,
                static_cast<size_t>(run * element));
    int dim = outer - 1;
    for (; dim >= 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      from_at += from_strides[d];
      to_at += to_strides[d];
      if (++index[d] < region.size[dim]) break;
      from_at -= from_strides[d] * region.size[dim];
      to_at -= to_strides[d] * region.size[dim];
      index[d] = 0;
    }
    if (dim < 0) return;
  }
}

}  // namespace trireme
