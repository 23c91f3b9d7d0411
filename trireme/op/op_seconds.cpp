#include "trireme/op/op_seconds.h"

#include <algorithm>
#include <bit>

#include "trireme/op/packing.h"

namespace trireme {

double compute_seconds(const OpDef& op, const TypeArgs& types, const Machine& machine) {
  if (!op.cost || op.traits.zero_cost_view || types.out.empty()) return 0;
  const Cost cost = op.cost.get()(types);
  const DType dtype = (types.in.empty() ? types.out : types.in)[0].dtype;
  const double flops_per_s = machine.flops_of(to_string(dtype)) * machine.achievable;
  return std::max(cost.flops / flops_per_s, cost.bytes / machine.memory_bytes_per_s);
}

double collective_seconds(const RankGroups& groups, const TypeArgs& types, const Mesh& mesh, const ReshardCosts& links,
                          int ways) {
  const LinkCost link = slowest_link(groups, mesh, links);
  int64_t sent = 0, got = 0;
  for (const TensorType& type : types.in) sent += type.bytes();
  for (const TensorType& type : types.out) got += type.bytes();
  const double share = static_cast<double>(groups.size - 1) / static_cast<double>(groups.size);
  return links.step_s + ways * (rounds(groups.size) * link.latency_s +
                                share * static_cast<double>(std::max(sent, got)) / link.bytes_per_s);
}

double packing_seconds(const OpDef& op, const TypeArgs& types, const Machine& machine) {
  if (op.collective->work == GroupWork::kExchange) return 0;  // counted with what it sends
  const auto [sent, come] = packing_of(op, types);
  return 2 * static_cast<double>(sent + come) / machine.memory_bytes_per_s;
}

LinkCost slowest_link(const RankGroups& groups, const Mesh& mesh, const ReshardCosts& links) {
  std::vector<int64_t> axes = groups.axes;
  if (!groups.ranks.empty()) {  // listed by number: they may lie anywhere
    for (int axis = 0; axis < mesh.axes(); ++axis) axes.push_back(axis);
  }
  if (axes.empty()) return links.link;
  LinkCost out = links.of(static_cast<int>(axes[0]));
  for (const int64_t axis : axes) {
    const LinkCost& link = links.of(static_cast<int>(axis));
    out.latency_s = std::max(out.latency_s, link.latency_s);
    out.bytes_per_s = std::min(out.bytes_per_s, link.bytes_per_s);
  }
  return out;
}

double rounds(int64_t ranks) {
  return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(ranks, 1) - 1));
}

}  // namespace trireme
