#include "tests/equivalence/random_collective.h"

#include <numeric>
#include <vector>

#include "trireme/layout/layout.h"
#include "trireme/ops/ops.h"

namespace trireme::equivalence {
namespace {

std::vector<int64_t> counted(int64_t n) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// By axes of the mesh, in any order, or by listed ranks: all of them, or some.
CollectiveAttrs random_group(const Mesh& mesh, bool must_list_all, Draw& draw) {
  const int64_t devices = mesh.devices();
  if (draw.chance(60)) {
    std::vector<int64_t> axes = counted(mesh.axes());
    draw.shuffle(axes);
    axes.resize(static_cast<size_t>(1 + draw.below(mesh.axes())));
    const int64_t size = mesh.size_of(std::vector<int>(axes.begin(), axes.end()));
    return {.axes = axes, .size = size};
  }
  std::vector<int64_t> sizes;
  for (int64_t size = 2; size <= devices; ++size) {
    if (devices % size == 0) sizes.push_back(size);
  }
  CollectiveAttrs out{.size = draw.of(sizes)};
  out.ranks = counted(devices);
  draw.shuffle(out.ranks);
  if (!must_list_all && draw.chance(40))
    out.ranks.resize(static_cast<size_t>(out.size * (1 + draw.below(devices / out.size))));
  return out;
}

// x, now and then beside another value.
std::vector<Tensor> with_company(const Tensor& x, Draw& draw) {
  if (draw.chance(60)) return {x};
  return {x * 0.5, x};
}

Tensor reduced(const Tensor& x, const Mesh& mesh, Draw& draw) {
  CollectiveAttrs group = random_group(mesh, false, draw);
  if (draw.chance(25)) group.reduction = draw.chance(50) ? "max" : "min";
  const Tensor y = all_reduce(with_company(x, draw), group).back();
  const bool is_mean = group.reduction == "sum" && draw.chance(60);
  return is_mean ? scale(y, 1 / static_cast<double>(group.size)) : y;
}

Tensor exchanged(const Tensor& x, const Mesh& mesh, Draw& draw) {
  const CollectiveAttrs group = random_group(mesh, false, draw);
  const std::vector<Tensor> sent = with_company(x, draw);
  std::vector<std::vector<int64_t>> to;
  for (size_t i = 0; i < sent.size(); ++i) {
    to.push_back(counted(group.size));
    draw.shuffle(to.back());
    for (int64_t& receiver : to.back()) receiver = draw.chance(20) ? -1 : receiver;
  }
  return neighbor_exchange(sent, group, to).back();
}

// Those that work on a dimension.
Tensor along_a_dimension(const Tensor& x, const Mesh& mesh, int64_t most_elements, Draw& draw) {
  CollectiveAttrs group = random_group(mesh, true, draw);
  const auto dim = static_cast<int>(draw.below(x.rank()));
  group.dim = dim;
  group.from_dim = draw.below(x.rank());
  const bool divides = x.size(dim) % group.size == 0;
  switch (draw.below(5)) {
    case 0:
      if (x.shape().elements() * group.size > most_elements) return x;
      return all_gather(with_company(x, draw), group).back();
    case 1:
      if (draw.chance(25)) group.reduction = draw.chance(50) ? "max" : "min";
      return divides ? reduce_scatter(with_company(x, draw), group).back() : x;
    case 2:
      return divides ? all_to_all(x, group) : x;
    case 3:
      return divides ? shard_slice(x, group) : x;
    default: {
      const int64_t before = draw.below(x.size(dim) + 1);
      const int64_t after = draw.below(x.size(dim) + 1);
      const bool fits = x.shape().elements() / x.size(dim) * (x.size(dim) + before + after) <= most_elements;
      return fits ? halo(x, group, dim, before, after) : x;
    }
  }
}

}  // namespace

Tensor random_collective(const Tensor& x, const Mesh& mesh, int64_t most_elements, Draw& draw) {
  const int64_t kind = draw.below(10);
  if (kind < 5 && x.rank() > 0) return along_a_dimension(x, mesh, most_elements, draw);
  if (kind < 7) return reduced(x, mesh, draw);
  if (kind == 7) return exchanged(x, mesh, draw);
  CollectiveAttrs group = random_group(mesh, false, draw);
  if (kind == 8) {
    group.root = draw.below(group.size);
    return broadcast(with_company(x, draw), group).back();
  }
  group.shift = draw.below(2 * group.size - 1) - (group.size - 1);
  return ring_shift(x, group);
}

std::string random_piece(const Shape& piece, const Mesh& mesh, Draw& draw) {
  if (piece.rank() == 0 || draw.chance(40)) return "";
  if (draw.chance(35)) return std::string(kOwnPiece);
  Layout layout = Layout::replicated(piece.rank());
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const auto dim = static_cast<size_t>(draw.below(piece.rank() + 1));
    if (dim < layout.dims.size()) layout.dims[dim].push_back(axis);
  }
  return to_string(layout, mesh);
}

}  // namespace trireme::equivalence
