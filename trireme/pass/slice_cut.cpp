#include "trireme/pass/slice_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/op/op_def.h"
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

bool has(const Axes& axes, int axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

// Whether ranks have the same of its result over its axes, where the result does not lie cut by them.
bool makes_the_same(const Node& node) {
  using Kind = ReshardStep::Kind;
  return std::ranges::any_of(std::array{Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter},
                             [&](Kind kind) { return node.op == &structural().step(kind); });
}

// Of each value the axes over which it differs from rank to rank though its layout does not use them, as statistics
// that ranks take of their own samples (cross_batch) and parts of the loss: without communication it is made of what is
// cut by the axis, or differs so itself.
std::vector<Axes> own_axes(const Program& program) {
  const Graph& graph = program.graph;
  std::vector<Axes> out(graph.values().size());
  const auto add = [&](ValueId made, int axis) {
    Axes& own = out[static_cast<size_t>(made)];
    if (!program.layouts[static_cast<size_t>(made)]->uses(axis) && !has(own, axis)) own.push_back(axis);
  };
  for (const Node& node : graph.nodes()) {
    const bool communicates = static_cast<bool>(def_of(node).collective);
    const std::vector<int64_t> over =
        makes_the_same(node) ? node.attrs.as<CollectiveAttrs>().axes : std::vector<int64_t>{};
    for (const ValueId made : node.outputs) {
      for (const ValueId operand : node.inputs) {
        for (const int axis : out[static_cast<size_t>(operand)]) {
          if (std::ranges::find(over, axis) == over.end()) add(made, axis);
        }
        if (communicates) continue;
        for (const Axes& axes : program.layouts[static_cast<size_t>(operand)]->dims) {
          for (const int axis : axes) add(made, axis);
        }
      }
    }
  }
  return out;
}

}  // namespace

AskedSlices::AskedSlices(const Program& program) : program_(program), own_(own_axes(program)) {}

// Over whose ranks it is the same.
Axes AskedSlices::axes_that_have_it(ValueId id) const {
  const auto at = static_cast<size_t>(id);
  Axes axes;
  for (int axis = 0; axis < program_.mesh.axes(); ++axis) {
    if (program_.mesh.axis(axis).size > 1 && !program_.layouts[at]->uses(axis) && !has(own_[at], axis))
      axes.push_back(axis);
  }
  return axes;
}

std::optional<SliceCut> AskedSlices::slice_cut(ValueId id) const {
  const Value& value = program_.graph.value(id);
  if (value.type->dtype == DType::kBool) return std::nullopt;
  Axes axes = axes_that_have_it(id);
  for (; !axes.empty(); axes.pop_back()) {
    for (int dim = 0; dim < value.type->shape.rank(); ++dim) {
      if (auto cut = cut_along(program_, id, dim, axes)) return cut;
    }
  }
  return std::nullopt;
}

std::optional<SliceCut> AskedSlices::cut(ValueId id) {
  std::optional<SliceCut> out = slice_cut(id);
  if (out) {
    ++cut_;
  } else if (!axes_that_have_it(id).empty() && program_.graph.type(id).elements() > 1) {
    const int64_t bytes = program_.graph.type(id).bytes();
    if (largest_ == kNoValue || bytes > program_.graph.type(largest_).bytes()) largest_ = id;
    ++whole_;
    whole_bytes_ += bytes;
  }
  return out;
}

PassRemark AskedSlices::remark(std::string_view key, std::string_view nothing) const {
  if (cut_ == 0 && whole_ == 0) return {fmt::format("{}: {}", key, nothing), true};
  if (whole_ == 0) return {};
  const Node& made_by = program_.graph.node(program_.graph.value(largest_).producer);
  return {
      fmt::format("{}: of {} values that several ranks have alike {} stay whole, {:.1f} KiB on each rank: no "
                  "dimension divides over these ranks, or they are truth values; the largest is {} of '{}', {}",
                  key, cut_ + whole_, whole_, static_cast<double>(whole_bytes_) / 1024, made_by.op->name,
                  program_.graph.scope_of(made_by), to_string(program_.graph.type(largest_)))};
}

}  // namespace trireme
