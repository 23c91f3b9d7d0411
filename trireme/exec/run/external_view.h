// Where the values of a plan lie: in its arenas, or in memory given for external inputs, which is checked against what
// the plan needs.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/exec/run/tier_memory.h"
#include "trireme/tensor/view.h"

namespace trireme {

// As ExecutorOptions::external.
using GivenMemory = std::function<View(std::string_view)>;

// How what the host has comes to where kernels of another device reach it, and who keeps it.
struct CopiesToDevice {
  DeviceStream& stream;
  std::vector<DeviceMemory>& kept;
};

// By value. Throws kUnsupported where an op on the host would read memory of the device, kInternal where no memory is
// given or of another type.
std::vector<View> views_of(const ExecutionPlan& plan, const TierMemory& memory, const GivenMemory& given,
                           Device& device, const CopiesToDevice& copies);

}  // namespace trireme
