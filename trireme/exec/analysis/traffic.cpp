#include "trireme/exec/analysis/traffic.h"

#include <algorithm>

#include "trireme/exec/plan/communication_bytes.h"
#include "trireme/op/message.h"
#include "trireme/op/rank_groups.h"

namespace trireme {
namespace {

int64_t bytes_sent(const ExecutionPlan& plan, const Action& action, const RankGroups& groups, int64_t rank) {
  if (rank != kAnyRank && groups.of(rank, plan.mesh).empty()) return 0;
  std::vector<TensorType> in, out;
  std::vector<int64_t> offsets;
  for (const int id : action.in) in.push_back(plan.values[static_cast<size_t>(id)].type);
  for (const int id : action.out) {
    out.push_back(plan.values[static_cast<size_t>(id)].type);
    offsets.push_back(plan.offset_of(id));
  }
  const int64_t place = rank == kAnyRank ? kAnyPlace : groups.place_of(rank, plan.mesh);
  return collective_bytes(*action.op, {in, out, action.attrs}, offsets, place);
}

}  // namespace

std::vector<PlanTraffic> traffic_per_step(const ExecutionPlan& plan, int64_t rank) {
  std::vector<PlanTraffic> out;
  for (const Action& action : plan.actions) {
    const bool sends = is_message(*action.op) && !action.in.empty();
    if (!sends && !is_communication(*action.op)) continue;
    const RankGroups groups = sends ? RankGroups{} : groups_of(*action.op, action.attrs);
    const std::string axes =
        sends ? fmt::format("to crew {}", message_of(*action.op, action.attrs).crew) : groups.text(plan.mesh);
    const auto same = [&](const PlanTraffic& t) { return t.op == action.op->name && t.axes == axes; };
    auto entry = std::find_if(out.begin(), out.end(), same);
    if (entry == out.end()) entry = out.insert(out.end(), {std::string(action.op->name), axes, 0, 0});
    ++entry->calls;
    entry->bytes +=
        sends ? plan.values[static_cast<size_t>(action.in[0])].type.bytes() : bytes_sent(plan, action, groups, rank);
  }
  return out;
}

}  // namespace trireme
