// The ops the compiler itself inserts, by name, and their attributes. Passes and gradients use these and know
// no other op.
#pragma once

#include "trireme/op/op_def.h"

namespace trireme {

struct CastAttrs {
  DType dtype = DType::kF32;
  static constexpr auto fields() { return std::tuple{field("dtype", &CastAttrs::dtype)}; }
};

// x in another element type; x itself where it has it.
Tensor cast_to(const Tensor& x, DType dtype);
bool is_cast(const Node& node);

// Whether a gradient rule may give this for a value of that type: the type itself, or, for a value narrower than f32, f32,
// in which sums over many elements are taken. They stay f32 up to a cast to the value, or are rounded to its type.
bool is_gradient_type(const TensorType& gradient, const TensorType& value);

// Sum of two gradients of one value, in the wider type of both.
Tensor add_gradients(const Tensor& a, const Tensor& b);
// A gradient of the given type that is one (a loss's own) or zero everywhere.
Tensor constant(Graph& graph, const TensorType& type, double value);

struct FullAttrs {
  DType dtype = DType::kF32;
  Shape shape;
  double value = 0;
  static constexpr auto fields() {
    return std::tuple{field("dtype", &FullAttrs::dtype), field("shape", &FullAttrs::shape),
                      field("value", &FullAttrs::value)};
  }
};

// The collectives and the local cut of a reshard. `axes` are mesh axes, the most significant first: the group of a
// rank is the ranks that agree with it in all other coordinates. Types are local.
struct CollectiveAttrs {
  std::vector<int64_t> axes;
  int64_t dim = 0;       // all_gather: the dimension joined; reduce_scatter, all_to_all, shard_slice: the one cut
  int64_t from_dim = 0;  // all_to_all: the dimension joined
  int64_t size = 1;      // ranks of the group
  int64_t root = 0;      // broadcast: the place in the group that has the value
  std::string reduction = "sum";
  int64_t shift = 1;     // ring_shift: how many places further in the group a piece goes
  static constexpr auto fields() {
    return std::tuple{field("axes", &CollectiveAttrs::axes), field("dim", &CollectiveAttrs::dim),
                      field("from_dim", &CollectiveAttrs::from_dim), field("size", &CollectiveAttrs::size),
                      field("root", &CollectiveAttrs::root), field("reduction", &CollectiveAttrs::reduction),
                      field("shift", &CollectiveAttrs::shift)};
  }
};

}  // namespace trireme
