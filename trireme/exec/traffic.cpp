#include "trireme/exec/traffic.h"

#include <algorithm>

#include "trireme/exec/collective.h"
#include "trireme/op/message.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

int64_t bytes_of(const ExecutionPlan& plan, const std::vector<int>& values) {
  int64_t bytes = 0;
  for (const int id : values) bytes += plan.values[static_cast<size_t>(id)].type.bytes();
  return bytes;
}

int64_t all_reduce_bytes(const ExecutionPlan& plan, const Action& action, int64_t p) {
  std::vector<Run> runs;
  for (const int id : action.out) {
    const TensorType& type = plan.values[static_cast<size_t>(id)].type;
    runs.push_back({plan.offset_of(id), type.dtype, type.elements()});
  }
  int64_t bytes = 0;
  for (const Run& run : joined(std::move(runs))) bytes += 2 * (run.end() - run.offset) * (p - 1) / p;
  return bytes;
}

int64_t exchange_bytes(const ExecutionPlan& plan, const Action& action, const RankGroups& groups, int64_t rank) {
  std::vector<TensorType> in, out;
  for (const int id : action.in) in.push_back(plan.values[static_cast<size_t>(id)].type);
  for (const int id : action.out) out.push_back(plan.values[static_cast<size_t>(id)].type);
  const TypeArgs types{in, out, action.attrs};
  if (rank != kAnyRank) return exchange_bytes(*action.op, types, groups.place_of(rank, plan.mesh));
  int64_t most = 0;
  for (int64_t place = 0; place < groups.size; ++place) most = std::max(most, exchange_bytes(*action.op, types, place));
  return most;
}

int64_t bytes_sent(const ExecutionPlan& plan, const Action& action, const RankGroups& groups, int64_t rank) {
  if (rank != kAnyRank && groups.of(rank, plan.mesh).empty()) return 0;
  if (is_exchange(*action.op)) return exchange_bytes(plan, action, groups, rank);
  const int64_t p = groups.size;
  if (action.op->name == "all_reduce") return all_reduce_bytes(plan, action, p);
  const bool sends = rank == kAnyRank || action.op->name != "broadcast" ||
                     groups.place_of(rank, plan.mesh) == action.attrs.as<CollectiveAttrs>().root;
  if (!sends) return 0;
  if (action.op->name == "broadcast") return bytes_of(plan, action.in) * (p - 1);  // the root's
  if (action.op->name == "ring_shift") return bytes_of(plan, action.in);
  return std::max(bytes_of(plan, action.in), bytes_of(plan, action.out)) * (p - 1) / p;
}

}  // namespace

std::vector<PlanTraffic> traffic_per_step(const ExecutionPlan& plan, int64_t rank) {
  std::vector<PlanTraffic> out;
  for (const Action& action : plan.actions) {
    const bool sends = is_message(*action.op) && !action.in.empty();
    if (!sends && !is_communication(*action.op)) continue;
    const RankGroups groups = sends ? RankGroups{} : groups_of(action.op->name, action.attrs);
    const std::string axes =
        sends ? fmt::format("to crew {}", message_of(*action.op, action.attrs).crew) : groups.text(plan.mesh);
    const auto same = [&](const PlanTraffic& t) { return t.op == action.op->name && t.axes == axes; };
    auto entry = std::find_if(out.begin(), out.end(), same);
    if (entry == out.end()) entry = out.insert(out.end(), {std::string(action.op->name), axes, 0, 0});
    ++entry->calls;
    entry->bytes += sends ? bytes_of(plan, action.in) : bytes_sent(plan, action, groups, rank);
  }
  return out;
}

}  // namespace trireme
