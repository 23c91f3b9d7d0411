#include "trireme/layout/box.h"

#include <algorithm>
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
    out += fmt::format("{}{}:{}", dim > 0 ? "," : "", box.start[dim], box.start[dim] + box.size[dim]);
  }
  return out + "]";
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  invariant(a.size.rank() == b.size.rank(), "boxes {} and {} differ in rank", to_string(a), to_string(b));
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

namespace detail {

void check_region(const Box& from, const Box& to, const Box& region) {
  invariant(region.elements() == 0 || (intersect(from, region) == region && intersect(to, region) == region),
            "region {} is not inside {} and {}", to_string(region), to_string(from), to_string(to));
}

int64_t offset_in(const Box& box, const Shape& start) {
  const auto strides = box.size.strides();
  int64_t at = 0;
  for (int dim = 0; dim < start.rank(); ++dim) {
    at += (start[dim] - box.start[dim]) * strides[static_cast<size_t>(dim)];
  }
  return at;
}

}  // namespace detail

void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box, const Box& region) {
  invariant(from.type.dtype == to.type.dtype, "copy_region between {} and {}", to_string(from.type.dtype),
            to_string(to.type.dtype));
  from.require_host();
  to.require_host();
  const int64_t element = size_of(from.type.dtype);
  each_run(from_box, to_box, region, [&](int64_t from_at, int64_t to_at, int64_t elements) {
    std::memcpy(to.data + to_at * element, from.data + from_at * element, static_cast<size_t>(elements * element));
  });
}

}  // namespace trireme
