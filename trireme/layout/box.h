// Box: a rectangular region of a tensor. The one intersection routine of the system: checkpoints,
// reshards and coordinate-aware kernels all describe "which part of the whole" with it.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "trireme/tensor/shape.h"
#include "trireme/tensor/view.h"

namespace trireme {

struct Box {
  Shape start;  // first element in each dimension, in the whole tensor
  Shape size;   // elements in each dimension

  static Box whole(const Shape& shape);
  int64_t elements() const { return size.elements(); }
  friend bool operator==(const Box&, const Box&) = default;
};

std::string to_string(const Box& box);  // "[0:4,8:16]"

// The common part, or nothing. A scalar's box (rank 0) meets every scalar's box.
std::optional<Box> intersect(const Box& a, const Box& b);

// Calls fn(first element in `from`, first in `to`, elements) for each run of the region, in whole-tensor coordinates,
// that is contiguous in both boxes, dense and row-major each. Throws kInternal when the region is not inside both
// boxes.
template <class Fn>
void each_run(const Box& from, const Box& to, const Box& region, Fn&& fn);

// Copies the region `region` (in whole-tensor coordinates) from `from`, which holds `from_box`, to
// `to`, which holds `to_box`; both dense row-major of one element type. Throws kInternal when the
// region is not inside both boxes.
void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box, const Box& region);

namespace detail {

void check_region(const Box& from, const Box& to, const Box& region);
int64_t offset_in(const Box& box, const Shape& start);

}  // namespace detail

template <class Fn>
void each_run(const Box& from, const Box& to, const Box& region, Fn&& fn) {
  detail::check_region(from, to, region);
  if (region.elements() == 0) return;
  // The innermost dimensions that are contiguous on both sides are one run.
  int64_t run = 1;
  int outer = region.size.rank();
  while (outer > 0) {
    run *= region.size[outer - 1];
    --outer;
    if (region.size[outer] != from.size[outer] || region.size[outer] != to.size[outer]) break;
  }
  const auto from_strides = from.size.strides();
  const auto to_strides = to.size.strides();
  int64_t from_at = detail::offset_in(from, region.start);
  int64_t to_at = detail::offset_in(to, region.start);
  std::array<int64_t, Shape::kMaxRank> index{};
  while (true) {
    fn(from_at, to_at, run);
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
