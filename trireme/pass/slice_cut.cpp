#include "trireme/pass/slice_cut.h"

#include <fmt/format.h>

#include "trireme/op/structural.h"

namespace trireme {
namespace {

std::optional<SliceCut> cut_along(const Program& program, ValueId id, int dim, const Axes& axes) {
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

// Over whose ranks it is the same.
Axes axes_that_have_it(const Program& program, ValueId id) {
  Axes axes;
  for (int axis = 0; axis < program.mesh.axes(); ++axis) {
    if (program.mesh.axis(axis).size > 1 && !program.layouts[static_cast<size_t>(id)]->uses(axis)) axes.push_back(axis);
  }
  return axes;
}

}  // namespace

std::optional<SliceCut> slice_cut(const Program& program, ValueId id) {
  const Value& value = program.graph.value(id);
  if (value.type->dtype == DType::kBool) return std::nullopt;
  Axes axes = axes_that_have_it(program, id);
  for (; !axes.empty(); axes.pop_back()) {
    for (int dim = 0; dim < value.type->shape.rank(); ++dim) {
      if (auto cut = cut_along(program, id, dim, axes)) return cut;
    }
  }
  return std::nullopt;
}

std::optional<SliceCut> AskedSlices::cut(const Program& program, ValueId id) {
  std::optional<SliceCut> out = slice_cut(program, id);
  if (out) {
    ++cut_;
  } else if (!axes_that_have_it(program, id).empty() && program.graph.type(id).elements() > 1) {
    const int64_t bytes = program.graph.type(id).bytes();
    if (largest_ == kNoValue || bytes > program.graph.type(largest_).bytes()) largest_ = id;
    ++whole_;
    whole_bytes_ += bytes;
  }
  return out;
}

PassRemark AskedSlices::remark(const Program& program, std::string_view key, std::string_view nothing) const {
  if (cut_ == 0 && whole_ == 0) return {fmt::format("{}: {}", key, nothing), true};
  if (whole_ == 0) return {};
  const Node& made_by = program.graph.node(program.graph.value(largest_).producer);
  return {
      fmt::format("{}: of {} values that several ranks have alike {} stay whole, {:.1f} KiB on each rank: no "
                  "dimension divides over these ranks, or they are truth values; the largest is {} of '{}', {}",
                  key, cut_ + whole_, whole_, static_cast<double>(whole_bytes_) / 1024, made_by.op->name,
                  program.graph.scope_of(made_by), to_string(program.graph.type(largest_)))};
}

}  // namespace trireme
