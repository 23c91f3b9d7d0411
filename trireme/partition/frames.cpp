#include "trireme/partition/frames.h"

#include <algorithm>
#include <vector>

#include "trireme/op/op_attrs.h"
#include "trireme/op/structural.h"
#include "trireme/partition/copies.h"

namespace trireme {
namespace {

// A node of one operand and one result, which lies as the operand does.
ValueId add_alike(Program& program, const OpDef& op, const Attrs& attrs, ValueId id, const Shape& whole) {
  const auto at = static_cast<size_t>(id);
  const TensorType type{program.graph.type(id).dtype, whole};
  const Layout layout = program.layouts[at];
  return add_to(program, op, attrs, {&id, 1}, {layout}, {type}).front();
}

ValueId fill(Program& program, ValueId id, size_t dim, std::string_view with) {
  const Shape whole = program.whole[static_cast<size_t>(id)];
  const FillBeyondAttrs attrs{static_cast<int64_t>(dim), whole[static_cast<int>(dim)], std::string(with)};
  return add_alike(program, structural().fill_beyond, Attrs::of(attrs), id, whole);
}

// Calls fn(dim, factor) for the dimensions of a tensor that have uneven parts.
template <class Fn>
void each_uneven(const CutNode& cut, const DimFactors& tensor, const Mesh& mesh, Fn&& fn) {
  for (size_t dim = 0; dim < tensor.size(); ++dim) {
    for (const int factor : tensor[dim]) {
      if (is_uneven(cut.rule, cut.cuts, static_cast<size_t>(factor), mesh)) fn(dim, factor);
    }
  }
}

}  // namespace

ValueId ready_to_read(Program& program, const CutNode& cut, size_t operand, ValueId id) {
  each_uneven(cut, cut.rule.in[operand], program.mesh, [&](size_t dim, int factor) {
    const Reduction reduction = cut.rule.factors[static_cast<size_t>(factor)].reduction;
    if (reduction == Reduction::kSum) return;
    id = fill(program, id, dim, reduction == Reduction::kMax ? "lowest" : "highest");
  });
  return id;
}

ValueId cleared(Program& program, const CutNode& cut, size_t result, ValueId id) {
  each_uneven(cut, cut.rule.out[result], program.mesh, [&](size_t dim, int factor) {
    if (keeps_zeros(cut.rule, factor)) return;
    id = fill(program, id, dim, "zero");
  });
  return id;
}

ValueId resized(Program& program, ValueId id, const Shape& from, const Shape& to, const Shape& whole) {
  if (from == to) return id;
  const std::vector<int64_t> none(static_cast<size_t>(to.rank()), 0);
  std::vector<int64_t> added = none;
  bool grows = false;
  for (int dim = 0; dim < to.rank(); ++dim) {
    added[static_cast<size_t>(dim)] = to[dim] - from[dim];
    grows = grows || to[dim] > from[dim];
  }
  if (grows) return add_alike(program, structural().pad, Attrs::of(PadAttrs{none, added}), id, whole);
  return add_alike(program, structural().slice, Attrs::of(SliceAttrs{none, {to.begin(), to.end()}}), id, whole);
}

}  // namespace trireme
