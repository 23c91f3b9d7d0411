#include "trireme/pass/slice_cut.h"

#include "trireme/op/structural.h"

namespace trireme {
namespace {

std::optional<SliceCut> cut_along(const Program& program, ValueId id, int dim, const std::vector<int>& axes) {
  const auto at = static_cast<size_t>(id);
  const int64_t ranks = program.mesh.size_of(axes);
  TensorType type = program.graph.type(id);
  const ReshardStep step{.kind = ReshardStep::Kind::kSlice, .dim = dim, .axes = axes};
  const Layout layout = layout_after(step, *program.layouts[at]);
  const bool is_even = (*program.whole[at])[dim] % layout.cuts(dim, program.mesh) == 0;
  if (!is_even || type.shape[dim] % ranks != 0) return std::nullopt;
  type.shape[dim] /= ranks;
  return SliceCut{Attrs::of(CollectiveAttrs{.axes = {axes.begin(), axes.end()}, .dim = dim, .size = ranks}), layout,
                  type};
}

}  // namespace

std::optional<SliceCut> slice_cut(const Program& program, ValueId id) {
  const Value& value = program.graph.value(id);
  if (value.type.dtype == DType::kBool) return std::nullopt;
  std::vector<int> axes;
  for (int axis = 0; axis < program.mesh.axes(); ++axis) {
    if (program.mesh.axis(axis).size > 1 && !program.layouts[static_cast<size_t>(id)]->uses(axis)) axes.push_back(axis);
  }
  for (; !axes.empty(); axes.pop_back()) {
    for (int dim = 0; dim < value.type.shape.rank(); ++dim) {
      if (auto cut = cut_along(program, id, dim, axes)) return cut;
    }
  }
  return std::nullopt;
}

}  // namespace trireme
