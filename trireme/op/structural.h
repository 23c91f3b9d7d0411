// The ops that the compiler itself inserts, and their attributes. Partitioning, passes and gradients use these and know
// no other op by name; whatever else they need to know about an op is one of its facets.
#pragma once

#include "trireme/op/op_def.h"

namespace trireme {

struct Structural {
  const OpDef& add;
  const OpDef& maximum;
  const OpDef& minimum;
  const OpDef& scale;
  const OpDef& cast;
  const OpDef& full;
  const OpDef& reshape;
  const OpDef& slice;
  const OpDef& split;
  const OpDef& concat;
  const OpDef& pad;
  const OpDef& fill_beyond;
  const OpDef& take_windows;
  const OpDef& add_windows;
  const OpDef& fused_rows;
  const OpDef& send;
  const OpDef& recv;
  const OpDef& move;
  const OpDef& part;
  const OpDef& join;
  const OpDef& take_rows;
  const OpDef& put_rows;
  const OpDef& add_rows;
  const OpDef& merge_rows;

  // Of two terms.
  const OpDef& reduced(Reduction reduction) const;
  // The collective, or the local cut, that does a step of a reshard.
  const OpDef& step(ReshardStep::Kind kind) const;
};
const Structural& structural();

// Whether the node does a reshard step of this kind.
bool does(const Node& node, ReshardStep::Kind kind);

struct CastAttrs {
  DType dtype = DType::kF32;
  static constexpr auto fields() { return std::tuple{field("dtype", &CastAttrs::dtype)}; }
};

// x in another element type; x itself where it has it.
Tensor cast_to(const Tensor& x, DType dtype);
bool is_cast(const Node& node);
// Whether the value is an input as this rank stores it, or a cast of one: what weights are gathered from.
bool is_as_stored(const Graph& graph, ValueId id);
// Whether it is a step that brings pieces of a tensor to where they are read, and computes nothing. Pieces of uneven
// parts are cut off where the tensor ends, or go on with zeros (partition/frames.h).
bool brings_pieces(const Node& node);
// The parameter that the value is as it is stored, or that casts and such steps make it of; kNoValue: of none. `how`,
// if given, gets what they do, which is the same for two values that are brought the same way.
ValueId brought_parameter(const Graph& graph, ValueId id, std::string* how = nullptr);

// Whether a gradient rule may give this for a value of that type: the type itself, or, for a value narrower than f32,
// f32, in which sums over many elements are taken. They stay f32 up to a cast to the value, or are rounded to its type.
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

// part: a tensor's rows, counted by its first dimension, where they lie; join: the tensor of all its rows, which are
// made where they belong. An input that is updated in parts is so without being anywhere whole.
struct PartAttrs {
  int64_t first = 0;
  int64_t rows = 1;
  static constexpr auto fields() {
    return std::tuple{field("first", &PartAttrs::first), field("rows", &PartAttrs::rows)};
  }
};

// A list of rows stands for a table of which all other rows are zero: i64[n], the numbers of the rows in ascending
// order with -1 in places that are not used, all at the end, and [n, ...], the rows, zeros where there is none.
// merge_rows adds lists: of each pair of operands the first `pieces`th, the second, ... are lists, one after the other.
struct MergeRowsAttrs {
  int64_t pieces = 1;
  int64_t rows = 1;  // places of the list that is made
  static constexpr auto fields() {
    return std::tuple{field("pieces", &MergeRowsAttrs::pieces), field("rows", &MergeRowsAttrs::rows)};
  }
};

struct ReshapeAttrs {
  Shape shape;
  static constexpr auto fields() { return std::tuple{field("shape", &ReshapeAttrs::shape)}; }
};

// The collectives and the local cut of a reshard. Types are local. The groups of ranks are given by `axes` or by
// `ranks`, as in op/rank_groups.h, and have `size` ranks each.
struct CollectiveAttrs {
  std::vector<int64_t> axes;
  int64_t dim = 0;       // all_gather: the dimension joined; reduce_scatter, all_to_all, shard_slice: the one cut
  int64_t from_dim = 0;  // all_to_all: the dimension joined
  int64_t size = 1;      // ranks of the group
  int64_t root = 0;      // broadcast: the place in the group that has the value
  std::string reduction = "sum";
  int64_t shift = 1;  // ring_shift: how many places further in the group a piece goes
  std::vector<int64_t> ranks = {};
  static constexpr auto fields() {
    return std::tuple{field("axes", &CollectiveAttrs::axes),         field("dim", &CollectiveAttrs::dim),
                      field("from_dim", &CollectiveAttrs::from_dim), field("size", &CollectiveAttrs::size),
                      field("root", &CollectiveAttrs::root),         field("reduction", &CollectiveAttrs::reduction),
                      field("shift", &CollectiveAttrs::shift),       field("ranks", &CollectiveAttrs::ranks)};
  }
};

// take_windows and add_windows: dimension `dim` lies in `size` equal blocks, one for each rank of the group in order,
// or in as many windows, which may overlap (layout/window_cut.h).
struct WindowAttrs {
  std::vector<int64_t> axes = {};
  std::vector<int64_t> ranks = {};
  int64_t size = 1;  // ranks of the group
  int64_t dim = 0;
  int64_t extent = 0;  // positions of the whole dimension
  int64_t offset = 0;  // where the first window begins; below 0: before the first position
  int64_t step = 0;    // from the begin of a window to that of the next
  int64_t length = 0;  // of a window
  double fill = 0;     // take_windows: what stands at positions outside the whole
  static constexpr auto fields() {
    return std::tuple{
        field("axes", &WindowAttrs::axes), field("ranks", &WindowAttrs::ranks),   field("size", &WindowAttrs::size),
        field("dim", &WindowAttrs::dim),   field("extent", &WindowAttrs::extent), field("offset", &WindowAttrs::offset),
        field("step", &WindowAttrs::step), field("length", &WindowAttrs::length), field("fill", &WindowAttrs::fill)};
  }
  WindowCut cut() const { return {.parts = size, .extent = extent, .offset = offset, .step = step, .length = length}; }
};

// neighbor_exchange: operand i of the group's rank k goes to rank to[i * size + k], or, where that is -1, nowhere.
struct ExchangeAttrs {
  std::vector<int64_t> axes = {};
  std::vector<int64_t> ranks = {};
  int64_t size = 1;
  std::vector<int64_t> to = {};
  static constexpr auto fields() {
    return std::tuple{field("axes", &ExchangeAttrs::axes), field("ranks", &ExchangeAttrs::ranks),
                      field("size", &ExchangeAttrs::size), field("to", &ExchangeAttrs::to)};
  }
};

}  // namespace trireme
