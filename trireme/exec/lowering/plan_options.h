// What a plan is made for: a device, numerics, homes of what stays from step to step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/plan/reuse.h"
#include "trireme/mesh/tuning.h"
#include "trireme/op/move.h"
#include "trireme/op/numerics.h"

namespace trireme {

class Device;  // backend/device.h

struct PlanOptions {
  int threads = 1;
  const Device* device = nullptr;  // whose kernels run it; null: cpu
  // kInvariant: kernels are chosen by the whole types, so that no cut changes the choice.
  Numerics numerics = Numerics::kFast;
  const Tuning* tuning = nullptr;  // as in KernelQuery
  // Parameters and state are not in the arena: another executor holds them. For programs that only read them.
  bool external_parameters = false;
  int crew = 0, crews = 1;  // as in ExecutionPlan
  // Parameters and state by name that lie in another tier than the device's; kernels work on them there.
  std::map<std::string, Tier, std::less<>> homes = {};
  ReuseOptions reuse = {};
  DiskBlocks disk_blocks = {};
};

}  // namespace trireme
