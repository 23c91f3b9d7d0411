// Box: a rectangular region of a tensor. The one intersection routine of the system: checkpoints,
// reshards and coordinate-aware kernels all describe "which part of the whole" with it.
#pragma once

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

// Copies the region `region` (in whole-tensor coordinates) from `from`, which holds `from_box`, to
// `to`, which holds `to_box`; both dense row-major of one element type. Throws kInternal when the
// region is not inside both boxes.
void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                 const Box& region);

}  // namespace trireme
