#include "trireme/partition/fewer_micro_batches.h"

#include <algorithm>
#include <utility>

#include "trireme/partition/micro_batch_steps.h"

namespace trireme {
namespace {

Axes axes_without_chunks(const Mesh& mesh) {
  const Axes chunks = seq_chunk_axes(mesh);
  Axes out = micro_batch_axes(mesh);
  erase_if(out, [&](int axis) { return std::ranges::count(chunks, axis) > 0; });
  return out;
}

}  // namespace

PartOf among(PartOf part, const Mesh& ranks, const OtherCount& count) {
  if (count.from == count.to) return part;
  const Mesh from = with_micro_batches(ranks, count.from, count.seq_chunks);
  const Mesh to = with_micro_batches(ranks, count.to, count.seq_chunks);
  const Axes chunks = seq_chunk_axes(from), chunks_then = seq_chunk_axes(to);
  const Axes ours = axes_without_chunks(from), then = axes_without_chunks(to);
  const auto find = [](const Axes& axes, int axis) { return std::ranges::find(axes, axis); };
  Layout layout = part.layout;
  // The sums that a term belongs to are over all micro-batches.
  for (const PartialAxis& each : std::exchange(layout.partial, {})) {
    const auto add = [&](int axis) { layout.add_partial(axis, each.reduction); };
    if (const auto chunk = find(chunks, each.axis); chunk != chunks.end()) {
      add(chunks_then[static_cast<size_t>(chunk - chunks.begin())]);
    } else if (find(ours, each.axis) == ours.end()) {
      add(each.axis);
    } else if (each.axis == ours.front()) {
      std::ranges::for_each(then, add);
    }
  }
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    Axes axes;
    for (const int axis : layout.dims[dim]) {
      if (const auto chunk = find(chunks, axis); chunk != chunks.end()) {
        axes.push_back(chunks_then[static_cast<size_t>(chunk - chunks.begin())]);
      } else if (find(ours, axis) == ours.end()) {
        axes.push_back(axis);
      } else if (axis == ours.front()) {
        axes.append(then.begin(), then.end());
        int64_t& size = part.whole[static_cast<int>(dim)];
        size = size / (count.from / count.seq_chunks) * (count.to / count.seq_chunks);
      }
    }
    layout.dims[dim] = std::move(axes);
  }
  part.layout = std::move(layout);
  return part;
}

IsOfAll::IsOfAll(const Program& program)
    : axes_(axes_without_chunks(with_micro_batches(program.mesh, program.micro_batches, program.seq_chunks))) {}

bool IsOfAll::operator()(const PartOf& part) const {
  return std::ranges::none_of(axes_, [&](int axis) { return part.layout->uses(axis); });
}

bool are_apart(const Program& program) {
  const MicroBatchSteps steps(program, micro_batches(program.mesh));
  const MicroBatchSteps::AxisSet all = steps.set_of(micro_batch_axes(program.mesh)),
                                 of_one = steps.set_of(seq_chunk_axes(program.mesh)), of_all = all & ~of_one;
  const auto is_whole = [&](MicroBatchSteps::AxisSet axes) {
    return (axes & of_all) == 0 || (axes & of_all) == of_all;
  };
  for (ValueId id = 0; id < static_cast<ValueId>(program.graph.values().size()); ++id) {
    if (!is_whole(steps.differs_along(id))) return false;
  }
  for (NodeId id = 0; id < static_cast<NodeId>(program.graph.nodes().size()); ++id) {
    const Node& node = program.graph.node(id);
    const bool is_late = steps.level_of(id) > 0 && (steps.differs_along(node) & of_all) != 0;
    const bool joins =
        steps.kind_of(id) == MicroBatchSteps::Kind::kGather && (steps.differs_along(node.inputs[0]) & of_all) != 0;
    if (is_late || joins || !is_whole(steps.summed_over(id))) return false;
  }
  return true;
}

bool depend_on_each_other(const Program& program) {
  const Graph& graph = program.graph;
  std::vector<int> last_of(graph.values().size(), -1);  // the last micro-batch that the value depends on
  for (const Node& node : graph.nodes()) {
    int last = node.micro_batch;
    for (const ValueId id : node.inputs) last = std::max(last, last_of[static_cast<size_t>(id)]);
    if (node.micro_batch >= 0 && last > node.micro_batch) return true;
    for (const ValueId id : node.outputs) last_of[static_cast<size_t>(id)] = last;
  }
  return false;
}

}  // namespace trireme
