#include "trireme/pass/lone_casts.h"

#include <algorithm>

#include "trireme/op/build.h"
#include "trireme/op/move.h"
#include "trireme/op/registry.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

const Attrs& to_device() {
  static const Attrs kAttrs = attrs_of({Tier::kHost, Tier::kDevice});
  return kAttrs;
}

// The move from the host that makes this type of that one; null: there is none.
const OpDef* move_that_makes(const TensorType& made, const TensorType& from) {
  for (const OpDef* each : all_ops()) {
    if (each->traits.move && result_types(*each, std::span(&from, 1), to_device())[0] == made) return each;
  }
  return nullptr;
}

}  // namespace

std::vector<NodeId> lone_casts(const Graph& graph, ValueId value, std::span<const NodeId> readers) {
  const bool are_casts = std::ranges::all_of(readers, [&](NodeId id) { return is_cast(graph.node(id)); });
  if (readers.empty() || !are_casts) return {};
  const auto made_by = [&](NodeId id) { return graph.type(graph.node(id).outputs[0]).dtype; };
  const DType dtype = made_by(readers[0]);
  const TensorType& type = graph.type(value);
  if (size_of(dtype) >= size_of(type.dtype) || move_that_makes({dtype, type.shape}, type) == nullptr) return {};
  const bool are_one = std::ranges::all_of(readers, [&](NodeId id) { return made_by(id) == dtype; });
  return are_one ? std::vector<NodeId>(readers.begin(), readers.end()) : std::vector<NodeId>();
}

void bring_in_type_of(std::span<const NodeId> casts, const Graph& graph, Rewrite& rewrite) {
  const Node& first = graph.node(casts[0]);
  const OpDef* const move = move_that_makes(graph.type(first.outputs[0]), graph.type(first.inputs[0]));
  rewrite.add(*move, to_device(), casts.first(1), first.inputs, first.outputs);
  for (const NodeId cast : casts) rewrite.same(graph.node(cast).outputs[0], first.outputs[0]);
}

}  // namespace trireme
