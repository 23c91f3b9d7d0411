#include "trireme/exec/lowering/place_buffers.h"

#include <algorithm>

#include "trireme/base/few.h"
#include "trireme/exec/memory/memory_plan.h"

namespace trireme {
namespace {

// At the front of the arenas.
void place_persistent(ExecutionPlan& plan, bool external) {
  for (Buffer& buffer : plan.buffers) {
    if (!is_persistent(buffer.holding)) continue;
    int64_t& at = plan.arena(buffer.tier).persistent;
    buffer.offset = external ? -1 : at;
    if (!external) at += align_buffer(buffer.bytes, plan.alignment_of(buffer.tier));
  }
}

// The group's bytes are reserved as one.
Lifetime share_lifetime(ExecutionPlan& plan, const std::vector<int>& group, int64_t alignment) {
  Lifetime all{0, static_cast<int>(plan.actions.size()), -1};
  for (const int id : group) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(id)];
    all = {all.bytes + align_buffer(buffer.bytes, alignment), std::min(all.first, buffer.first),
           std::max(all.last, buffer.last)};
  }
  for (const int id : group) {
    plan.buffers[static_cast<size_t>(id)].first = all.first;
    plan.buffers[static_cast<size_t>(id)].last = all.last;
  }
  return all;
}

// What is of the step alone, after what stays.
void place_of_step(ExecutionPlan& plan, Tier tier, const std::vector<std::vector<int>>& together) {
  Arena& arena = plan.arena(tier);
  const int64_t alignment = plan.alignment_of(tier);
  std::vector<Lifetime> lifetimes;
  std::vector<Few<int, 2>> members;
  std::vector<char> grouped(plan.buffers.size(), 0);
  for (const std::vector<int>& group : together) {
    if (plan.buffers[static_cast<size_t>(group.front())].tier != tier) continue;
    for (const int id : group) grouped[static_cast<size_t>(id)] = 1;
    lifetimes.push_back(share_lifetime(plan, group, alignment));
    members.push_back(group);
  }
  for (size_t id = 0; id < plan.buffers.size(); ++id) {
    const Buffer& buffer = plan.buffers[id];
    if (grouped[id] || is_persistent(buffer.holding) || buffer.tier != tier) continue;
    lifetimes.push_back({buffer.bytes, buffer.first, buffer.last});
    members.push_back({static_cast<int>(id)});
  }
  const MemoryPlan memory = plan_memory(lifetimes, alignment);
  for (size_t i = 0; i < members.size(); ++i) {
    int64_t offset = arena.persistent + memory.offsets[i];
    for (const int id : members[i]) {
      Buffer& buffer = plan.buffers[static_cast<size_t>(id)];
      buffer.offset = offset;
      offset += align_buffer(buffer.bytes, alignment);
    }
  }
  arena.bytes = arena.persistent + memory.bytes;
  arena.lower_bound = arena.persistent + memory.lower_bound;
}

}  // namespace

void place_buffers(ExecutionPlan& plan, const std::vector<std::vector<int>>& together, bool external) {
  place_persistent(plan, external);
  for (const Tier tier : kEveryTier) place_of_step(plan, tier, together);
}

}  // namespace trireme
