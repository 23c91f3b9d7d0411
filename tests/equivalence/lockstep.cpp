#include "tests/equivalence/lockstep.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/layout/interpret_reshard.h"
#include "trireme/layout/window_cut.h"
#include "trireme/op/interpret.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/structural.h"

namespace trireme::equivalence {
namespace {

using Pieces = std::vector<HostTensor>;  // of all ranks, or of those of a group

// Part k of `parts` along a dimension.
HostTensor part_of(const HostTensor& x, int64_t dim, int64_t parts, int64_t k) {
  Box box = Box::whole(x.shape());
  const auto d = static_cast<int>(dim);
  box.size[d] /= parts;
  box.start[d] = k * box.size[d];
  HostTensor out(TensorType{x.type().dtype, box.size});
  copy_region(x.view(), Box::whole(x.shape()), out.view(), box, box);
  return out;
}

HostTensor joined(const std::vector<const HostTensor*>& parts, int64_t dim) {
  const auto d = static_cast<int>(dim);
  TensorType type = parts[0]->type();
  type.shape[d] *= static_cast<int64_t>(parts.size());
  HostTensor out(type);
  for (size_t k = 0; k < parts.size(); ++k) {
    Box box = Box::whole(parts[k]->shape());
    box.start[d] = static_cast<int64_t>(k) * box.size[d];
    copy_region(parts[k]->view(), box, out.view(), Box::whole(type.shape), box);
  }
  return out;
}
HostTensor joined(const Pieces& parts, int64_t dim) {
  std::vector<const HostTensor*> all;
  for (const HostTensor& part : parts) all.push_back(&part);
  return joined(all, dim);
}

HostTensor reduction_of(const std::vector<const HostTensor*>& terms, const std::string& reduction) {
  HostTensor out = terms[0]->clone();
  const Reduction how = reduction == "sum" ? Reduction::kSum : reduction == "max" ? Reduction::kMax : Reduction::kMin;
  for (size_t k = 1; k < terms.size(); ++k) reduce_into(out.view(), terms[k]->view(), how);
  return out;
}

// What the member at `place` of a group gets of operand `which`, which members have in their order.
HostTensor received(const Node& node, const std::vector<const HostTensor*>& members, int64_t place, size_t which) {
  const std::string_view op = node.op->name;
  if (op == "neighbor_exchange") {
    const auto& attrs = node.attrs.as<ExchangeAttrs>();
    const auto first = attrs.to.begin() + static_cast<std::ptrdiff_t>(which * static_cast<size_t>(attrs.size));
    const auto from = std::find(first, first + attrs.size, place);
    if (from != first + attrs.size) return members[static_cast<size_t>(from - first)]->clone();
    HostTensor nothing(members[0]->type());
    std::ranges::fill(nothing.view().raw(), std::byte{0});
    return nothing;
  }
  if (op == "take_windows" || op == "add_windows") {
    const auto& attrs = node.attrs.as<WindowAttrs>();
    const HostTensor whole = joined(members, attrs.dim);
    const auto dim = static_cast<int>(attrs.dim);
    return part_of(
        op == "take_windows" ? take_windows(whole, dim, attrs.cut(), attrs.fill) : add_windows(whole, dim, attrs.cut()),
        attrs.dim, attrs.size, place);
  }
  const auto& attrs = node.attrs.as<CollectiveAttrs>();
  if (op == "all_reduce") return reduction_of(members, attrs.reduction);
  if (op == "all_gather") return joined(members, attrs.dim);
  if (op == "reduce_scatter") return part_of(reduction_of(members, attrs.reduction), attrs.dim, attrs.size, place);
  if (op == "ring_shift") return members[static_cast<size_t>((place + attrs.size - attrs.shift) % attrs.size)]->clone();
  if (op == "broadcast") return members[static_cast<size_t>(attrs.root)]->clone();
  if (op == "shard_slice") return part_of(*members[static_cast<size_t>(place)], attrs.dim, attrs.size, place);
  require(op == "all_to_all", "no meaning is known here of the collective '{}'", op);
  Pieces parts;
  for (const HostTensor* member : members) parts.push_back(part_of(*member, attrs.dim, attrs.size, place));
  return joined(parts, attrs.from_dim);
}

class Lockstep {
 public:
  Lockstep(const Graph& graph, const Mesh& mesh, const Change& change)
      : graph_(graph), mesh_(mesh), change_(change), values_(static_cast<size_t>(mesh.devices())) {
    for (Pieces& of_rank : values_) of_rank.resize(graph.values().size());
  }

  std::vector<Tensors> run(const std::vector<Tensors>& inputs) {
    for (size_t rank = 0; rank < values_.size(); ++rank) {
      for (const Input& input : graph_.inputs()) at(rank, input.value) = inputs[rank].at(input.name).clone();
    }
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      for (size_t rank = 0; rank < values_.size(); ++rank) {
        if (def_of(graph_.node(id)).collective)
          receive(id, rank);
        else
          compute(id, rank);
      }
    }
    std::vector<Tensors> out(values_.size());
    for (size_t rank = 0; rank < values_.size(); ++rank) {
      for (const Output& output : graph_.outputs()) {
        out[rank].insert_or_assign(output.name, at(rank, output.value).clone());
      }
    }
    return out;
  }

 private:
  HostTensor& at(size_t rank, ValueId id) { return values_[rank][static_cast<size_t>(id)]; }

  void keep(NodeId id, size_t rank, size_t result, HostTensor tensor, std::vector<const HostTensor*> operands) {
    if (change_) change_({id, result, static_cast<int64_t>(rank), std::move(operands), tensor});
    at(rank, graph_.node(id).outputs[result]) = std::move(tensor);
  }

  void compute(NodeId id, size_t rank) {
    const Node& node = graph_.node(id);
    std::vector<const HostTensor*> in;
    std::vector<TensorType> types;
    for (const ValueId operand : node.inputs) in.push_back(&at(rank, operand));
    for (const ValueId result : node.outputs) types.push_back(graph_.type(result));
    std::vector<HostTensor> results = run_reference(def_of(node), node.attrs, in, types);
    for (size_t i = 0; i < results.size(); ++i) keep(id, rank, i, std::move(results[i]), in);
  }

  void receive(NodeId id, size_t rank) {
    const Node& node = graph_.node(id);
    const RankGroups groups = groups_of(node);
    const std::vector<int64_t> group = groups.of(static_cast<int64_t>(rank), mesh_);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (group.empty()) {  // takes no part: it keeps what it has, or nothing comes to it
        const bool receives = def_of(node).collective->work == GroupWork::kExchange;
        at(rank, node.outputs[i]) =
            receives ? HostTensor(graph_.type(node.outputs[i])) : at(rank, node.inputs[i]).clone();
        continue;
      }
      std::vector<const HostTensor*> members;
      for (const int64_t member : group) members.push_back(&at(static_cast<size_t>(member), node.inputs[i]));
      const int64_t place = groups.place_of(static_cast<int64_t>(rank), mesh_);
      keep(id, rank, i, received(node, members, place, i), members);
    }
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const Change& change_;
  std::vector<Pieces> values_;  // of each rank
};

}  // namespace

Layout layout_of(const Graph& graph, const Input& input, const Mesh& mesh) {
  const int rank = graph.type(input.value).shape.rank();
  Layout out = Layout::replicated(rank);
  if (input.piece.is_own()) {  // side by side
    for (int axis = 0; axis < mesh.axes(); ++axis) out.dims[0].push_back(axis);
  } else if (input.piece.layout() != nullptr) {
    out = input.piece.layout()->on(mesh);
    out.dims.resize(static_cast<size_t>(rank));
  }
  return out;
}

Shape whole_of(const Graph& graph, const Input& input, const Mesh& mesh) {
  Shape out = graph.type(input.value).shape;
  const Layout layout = layout_of(graph, input, mesh);
  for (int dim = 0; dim < out.rank(); ++dim) out[dim] *= layout.cuts(dim, mesh);
  return out;
}

std::vector<Tensors> run_in_lockstep(const Graph& graph, const Mesh& mesh, const std::vector<Tensors>& inputs,
                                     const Change& change) {
  return Lockstep(graph, mesh, change).run(inputs);
}

}  // namespace trireme::equivalence
