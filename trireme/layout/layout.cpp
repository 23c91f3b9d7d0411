#include "trireme/layout/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/said.h"

namespace trireme {
namespace {

int64_t longest_part(int64_t size, int64_t parts) {
  return size / parts + (size % parts == 0 ? 0 : 1);  // no sum: both may be the largest number
}

// "1, 2, 5 or 10": the divisors of `size`; of a long list the three on each side of `wanted`.
std::string usable_cuts(int64_t size, int64_t wanted) {
  std::vector<int64_t> small;
  std::vector<int64_t> large;
  for (int64_t d = 1; d * d <= size; ++d) {
    if (size % d != 0) continue;
    small.push_back(d);
    if (d * d != size) large.insert(large.begin(), size / d);
  }
  small.insert(small.end(), large.begin(), large.end());
  if (small.size() > 8) {
    const auto above = std::upper_bound(small.begin(), small.end(), wanted);
    const auto first = above - std::min<int64_t>(3, above - small.begin());
    small = std::vector<int64_t>(first, above + std::min<int64_t>(3, small.end() - above));
  }
  std::string out;
  for (size_t i = 0; i < small.size(); ++i) {
    if (i > 0) out += i + 1 == small.size() ? " or " : ", ";
    out += std::to_string(small[i]);
  }
  return out;
}

// What is wrong with a layout that names each axis at most once and has the right rank, or "".
std::string bad_cut(const Layout& layout, const Shape& whole, const Mesh& mesh, std::string_view what, Parts parts) {
  for (int dim = 0; dim < layout.rank(); ++dim) {
    const Axes& axes = layout.dims[static_cast<size_t>(dim)];
    const int64_t cuts = mesh.size_of(axes);
    if (falls_in(whole[dim], cuts, parts)) continue;
    const std::string names = print_axes(axes, mesh);
    if (parts == Parts::kUneven) {
      const int64_t longest = longest_part(whole[dim], cuts);
      const int64_t used = longest_part(whole[dim], longest);
      return fmt::format("dim {} of '{}' (size {}) in {} parts of {} over '{}' leaves {} of them empty. Use {} parts.",
                         dim, what, whole[dim], cuts, longest, names, cuts - used, used);
    }
    return fmt::format(
        "mesh {} '{}' {} size {}, which does not divide dim {} of '{}' (size {}). "
        "Use an axis of {}, or pad to {}.",
        names.find('*') == names.npos ? "axis" : "axes", names, names.find('*') == names.npos ? "has" : "have", cuts,
        dim, what, whole[dim], usable_cuts(whole[dim], cuts), (whole[dim] / cuts + 1) * cuts);
  }
  return "";
}

std::string problem(const Layout& layout, const Shape& whole, const Mesh& mesh, std::string_view what, Parts parts) {
  if (layout.rank() != whole.rank()) {
    return fmt::format(
        "layout {} of '{}' has {} dimensions, but its shape {} has {}; give one entry "
        "per dimension, '-' where it is whole",
        to_string(layout, mesh), what, layout.rank(), to_string(whole), whole.rank());
  }
  Few<char, 32> used(static_cast<size_t>(mesh.axes()));
  Few<int, 16> axes;
  for (const Axes& dim : layout.dims) axes.append(dim.begin(), dim.end());
  for (const PartialAxis& p : layout.partial) axes.push_back(p.axis);
  for (int axis : axes) {
    static_cast<void>(mesh.axis(axis));
    if (used[static_cast<size_t>(axis)] != 0) {
      return fmt::format(
          "layout {} of '{}' uses mesh axis '{}' twice; an axis cuts one dimension once, "
          "or is partial",
          to_string(layout, mesh), what, mesh.axis(axis).name);
    }
    used[static_cast<size_t>(axis)] = 1;
  }
  for (const PartialAxis& p : layout.partial) {
    if (p.reduction == layout.partial[0].reduction) continue;
    return fmt::format(
        "layout {} of '{}' is partial in two ways, {} over '{}' and {} over '{}'; the "
        "result would depend on their order: reduce one of them first",
        to_string(layout, mesh), what, to_string(layout.partial[0].reduction), mesh.axis(layout.partial[0].axis).name,
        to_string(p.reduction), mesh.axis(p.axis).name);
  }
  return bad_cut(layout, whole, mesh, what, parts);
}

}  // namespace

std::string_view to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMax:
      return "max";
    case Reduction::kMin:
      return "min";
  }
  return "unknown";
}

Layout Layout::replicated(int rank) {
  Layout out;
  out.dims.resize(static_cast<size_t>(rank));
  return out;
}

bool Layout::is_replicated() const {
  return partial.empty() && std::all_of(dims.begin(), dims.end(), [](const auto& d) { return d.empty(); });
}

bool Layout::is_partial_over(int axis) const {
  return std::any_of(partial.begin(), partial.end(), [&](PartialAxis p) { return p.axis == axis; });
}

int Layout::dim_cut_by(int axis) const {
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    if (std::find(dims[dim].begin(), dims[dim].end(), axis) != dims[dim].end()) {
      return static_cast<int>(dim);
    }
  }
  return -1;
}

bool Layout::uses(int axis) const {
  return dim_cut_by(axis) >= 0 || is_partial_over(axis);
}

int64_t Layout::cuts(int dim, const Mesh& mesh) const {
  return mesh.size_of(dims[static_cast<size_t>(dim)]);
}

Axes Layout::replica_axes(const Mesh& mesh) const {
  Axes out;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (!uses(axis)) out.push_back(axis);
  }
  return out;
}

Axes Layout::partial_axes() const {
  Axes out;
  for (const PartialAxis& p : partial) out.push_back(p.axis);
  return out;
}

void Layout::add_partial(int axis, Reduction reduction) {
  const auto at =
      std::upper_bound(partial.begin(), partial.end(), axis, [](int a, const PartialAxis& p) { return a < p.axis; });
  partial.insert(at, {axis, reduction});
}

size_t hash(const Layout& layout) {
  uint64_t h = 0xcbf29ce484222325U;
  const auto mix = [&h](int value) {
    h = (h ^ static_cast<uint64_t>(value)) * 0x100000001b3U;
    h ^= h >> 29U;
  };
  for (const Axes& dim : layout.dims) {
    for (int axis : dim) mix(axis + 1);
    mix(0);
  }
  for (const PartialAxis& p : layout.partial) mix(p.axis * 3 + static_cast<int>(p.reduction) + 1);
  return static_cast<size_t>(h);
}

bool falls_in(int64_t size, int64_t parts, Parts how) {
  if (size % parts == 0) return true;
  return how == Parts::kUneven && parts <= longest_part(size, longest_part(size, parts));
}

void check(const Layout& layout, const Shape& whole, const Mesh& mesh, std::string_view what, Parts parts) {
  const std::string text = problem(layout, whole, mesh, what, parts);
  require(text.empty(), "{}", text);
}

bool fits(const Layout& layout, const Shape& whole, const Mesh& mesh, Parts parts) {
  if (layout.rank() != whole.rank()) return false;
  return problem(layout, whole, mesh, "", parts).empty();
}

Shape frame(const Shape& whole, const Layout& layout, const Mesh& mesh) {
  Shape out = local_shape(whole, layout, mesh);
  for (int dim = 0; dim < whole.rank(); ++dim) out[dim] *= layout.cuts(dim, mesh);
  return out;
}

Box local_box(const Shape& whole, const Layout& layout, const Mesh& mesh, int64_t rank) {
  invariant(layout.rank() == whole.rank(), "layout of {} dimensions for shape {}", layout.rank(), said(whole));
  Box out{whole, whole};
  for (int dim = 0; dim < whole.rank(); ++dim) {
    const Axes& axes = layout.dims[static_cast<size_t>(dim)];
    out.size[dim] = longest_part(whole[dim], mesh.size_of(axes));
    out.start[dim] = mesh.index_along(rank, axes) * out.size[dim];
  }
  return out;
}

Shape local_shape(const Shape& whole, const Layout& layout, const Mesh& mesh) {
  return local_box(whole, layout, mesh, 0).size;
}

Box held(const Box& piece, const Shape& whole) {
  Box out = piece;
  for (int dim = 0; dim < whole.rank(); ++dim) out.size[dim] = std::min(piece.size[dim], whole[dim] - piece.start[dim]);
  return out;
}

}  // namespace trireme
