// Binds the actions of a plan to what they use on one rank: the bytes of their values, kernels, groups of ranks,
// background lanes. After that, a step looks nothing up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/background/host_lane.h"
#include "trireme/exec/run/bound_action.h"
#include "trireme/exec/run/tier_memory.h"

namespace trireme {

// What a rank has for the actions of a plan. It outlives them.
struct RankResources {
  comm::World* world = nullptr;  // null: one rank
  ThreadPool* pool = nullptr;    // null: the calling thread computes
  Device& device;
  int64_t rank = 0;  // of the mesh
  const TierMemory& memory;
  std::span<const View> views;  // by value
  DeviceStream& kernels;
  DeviceStream* outward = nullptr;  // copies from the device to the host; null: what is sent is sent in place
  DeviceStream* inward = nullptr;   // copies back; null with `outward`
  Movers& movers;
  HostLane* host = nullptr;   // null: no action runs on the host
  HostLane* casts = nullptr;  // of moves that make another element type; null: there is none
};

struct BoundActions {
  std::vector<Bound> actions;  // of the plan's, in their order; moved as a whole, none is moved alone
  int64_t collectives = 0;
  int64_t lookups = 0;  // of groups; actions of one call share one
};

// Collective over the plan's ranks if it makes groups. Throws kInvalidArgument if the device has no kernel of a name,
// or if messages go to crews that do not exist.
BoundActions bind_actions(const ExecutionPlan& plan, const RankResources& rank);

// What the kernel of an action is called with.
KernelArgs kernel_args(Bound& bound, ThreadPool* pool);

}  // namespace trireme
