#include "trireme/partition/fewer_micro_batches.h"

#include <algorithm>
#include <utility>

#include "trireme/partition/micro_batch_steps.h"

namespace trireme {

PartOf among(PartOf part, const Mesh& ranks, const OtherCount& count) {
  if (count.from == count.to) return part;
  const Mesh from = with_micro_batches(ranks, count.from, count.seq_chunks);
  const Mesh to = with_micro_batches(ranks, count.to, count.seq_chunks);
  const std::vector<int> chunks = seq_chunk_axes(from), chunks_then = seq_chunk_axes(to);
  const auto without_chunks = [](const Mesh& mesh, const std::vector<int>& of_chunks) {
    std::vector<int> axes = micro_batch_axes(mesh);
    std::erase_if(axes, [&](int axis) { return std::ranges::count(of_chunks, axis) > 0; });
    return axes;
  };
  const std::vector<int> ours = without_chunks(from, chunks), then = without_chunks(to, chunks_then);
  Layout layout = part.layout;
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    std::vector<int> axes;
    for (const int axis : layout.dims[dim]) {
      if (const auto chunk = std::ranges::find(chunks, axis); chunk != chunks.end()) {
        axes.push_back(chunks_then[static_cast<size_t>(chunk - chunks.begin())]);
      } else if (std::ranges::find(ours, axis) == ours.end()) {
        axes.push_back(axis);
      } else if (axis == ours.front()) {
        axes.insert(axes.end(), then.begin(), then.end());
        int64_t& size = part.whole[static_cast<int>(dim)];
        size = size / (count.from / count.seq_chunks) * (count.to / count.seq_chunks);
      }
    }
    layout.dims[dim] = std::move(axes);
  }
  part.layout = std::move(layout);
  return part;
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
    const bool is_late = steps.level_of(id) > 0 && steps.differs_along(program.graph.node(id)) != 0;
    if (is_late || steps.kind_of(id) == MicroBatchSteps::Kind::kGather || !is_whole(steps.summed_over(id)))
      return false;
  }
  return true;
}

}  // namespace trireme
