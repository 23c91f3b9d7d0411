// Layout: how one tensor lies on a mesh. Each mesh axis does exactly one of three things to it:
//  - it cuts one dimension: ranks that differ in that coordinate hold different parts. A dimension
//    may be cut by several axes, listed most significant first: cut by [a, b] it has |a|*|b|
//    parts, and the rank at (i, j) holds part i*|b|+j;
//  - the tensor is *partial* over it: every rank along it holds a term of the full size, and the
//    tensor is their sum (or maximum, or minimum);
//  - otherwise the tensor is replicated over it: the ranks along it hold the same bits.
// Printed as "[dp, tp*sp, -] partial(sum: mp)": one entry per dimension, "-" where it is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/few.h"
#include "trireme/layout/box.h"
#include "trireme/mesh/mesh.h"
#include "trireme/tensor/shape.h"

namespace trireme {

enum class Reduction { kSum, kMax, kMin };
std::string_view to_string(Reduction reduction);  // "sum", "max", "min"

struct PartialAxis {
  int axis = 0;
  Reduction reduction = Reduction::kSum;
  friend bool operator==(const PartialAxis&, const PartialAxis&) = default;
};

using AxesOfDims = Few<Axes, 4>;
using PartialAxes = Few<PartialAxis, 2>;

struct Layout {
  AxesOfDims dims;      // per dimension the prime mesh axes that cut it
  PartialAxes partial;  // sorted by axis; one kind of reduction only

  static Layout replicated(int rank);

  int rank() const { return static_cast<int>(dims.size()); }
  bool is_replicated() const;  // nothing is cut and nothing is partial
  bool is_partial() const { return !partial.empty(); }
  bool uses(int axis) const;  // cuts or is partial over it
  bool is_partial_over(int axis) const;
  int dim_cut_by(int axis) const;                 // -1 when the axis cuts none
  int64_t cuts(int dim, const Mesh& mesh) const;  // parts of the dimension
  // The axes over which the tensor is replicated, in mesh order.
  Axes replica_axes(const Mesh& mesh) const;
  Axes partial_axes() const;
  void add_partial(int axis, Reduction reduction);  // keeps `partial` sorted

  friend bool operator==(const Layout&, const Layout&) = default;
};

size_t hash(const Layout& layout);
struct LayoutHash {
  size_t operator()(const Layout& layout) const { return hash(layout); }
};

// The text form, which is that of layout/named_layout.h.
std::string to_string(const Layout& layout, const Mesh& mesh);
// Reads what to_string wrote, back identical. `rank` is the number of dimensions expected, or
// -1 for any. Throws kInvalidArgument or, for an unknown axis, kNotFound.
Layout parse_layout(std::string_view text, const Mesh& mesh, int rank = -1);

// Whether the parts of a dimension must be equal. Uneven ones are as long as the longest, ceil(size / parts), but for
// the last, which holds what is left and may not be empty.
enum class Parts { kEven, kUneven };

// Throws kInvalidArgument when the layout does not fit the tensor called `what`: another number of
// dimensions, an axis used twice, two kinds of reduction, or a dimension that cannot be divided into such parts.
void check(const Layout& layout, const Shape& whole, const Mesh& mesh, std::string_view what,
           Parts parts = Parts::kEven);
// Whether check() passes.
bool fits(const Layout& layout, const Shape& whole, const Mesh& mesh, Parts parts = Parts::kEven);
// Whether a dimension of this size can be divided into that many parts, none of them empty.
bool falls_in(int64_t size, int64_t parts, Parts how);

// Every rank's piece has the same shape. Where parts are uneven the piece of the last one goes on beyond the end of the
// dimension, with zeros, and all pieces together make a larger tensor: the layout's frame.
Shape frame(const Shape& whole, const Layout& layout, const Mesh& mesh);
// The box of the frame that a rank's piece is. All questions of "who holds what" end here.
Box local_box(const Shape& whole, const Layout& layout, const Mesh& mesh, int64_t rank);
// The shape of every rank's piece.
Shape local_shape(const Shape& whole, const Layout& layout, const Mesh& mesh);
// What of a piece's box is in the tensor.
Box held(const Box& piece, const Shape& whole);

}  // namespace trireme
