#include "trireme/parallel/propagate/found_layouts.h"

#include <algorithm>

#include "trireme/parallel/propagate/gradient_cuts.h"

namespace trireme {
namespace {

// The layout a value is to be seen in, cut in micro-batches as it is made.
Layout with_its_micro_batches(const Propagated& known, ValueId id, const Layout& seen) {
  const std::optional<Layout>& own = known.layout(id);
  if (!own || micro_batches(known.mesh()) == 1) return seen;
  Layout out = seen;
  for (size_t dim = 0; dim < out.dims.size(); ++dim) {
    for (const int axis : own->dims[dim]) {
      if (is_micro_batch_axis(known.mesh(), axis) && !out.uses(axis)) out.dims[dim].push_back(axis);
    }
    order_micro_batches(known.mesh(), known.asks, out.dims[dim]);
  }
  return fits(out, known.graph.type(id).shape, known.mesh()) ? out : seen;
}

}  // namespace

void order_micro_batches(const Mesh& mesh, const Asks& asks, Axes& axes) {
  std::ranges::stable_partition(axes, [&](int axis) { return is_seq_chunk_axis(mesh, axis); });
  const auto within = std::ranges::find_first_of(axes, asks.within_micro_batches);
  std::stable_partition(within, axes.end(), [&](int axis) { return is_micro_batch_axis(mesh, axis); });
}

std::optional<Layout> found_by(const Propagated& known, const Node& node, ValueId operand) {
  // The update of a parameter works on it as it is stored.
  const bool stored = known.graph.value(operand).producer < 0 && node.phase == Phase::kUpdate;
  if (const auto seen = known.asks.seen_as.find(operand); seen != known.asks.seen_as.end() && !stored) {
    return with_its_micro_batches(known, operand, seen->second);
  }
  const std::optional<Layout>& own = known.layout(operand);
  return node.gradient_of < 0 || !own ? own : found_by_gradient(known, node, operand);
}

}  // namespace trireme
