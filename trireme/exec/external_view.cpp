#include "trireme/exec/external_view.h"

#include "trireme/base/error.h"

namespace trireme {

View external_view(const ExecutionPlan& plan, const PlanInput& input,
                   const std::function<View(std::string_view)>& given, std::string_view device) {
  const PlanValue& value = plan.values[static_cast<size_t>(input.value)];
  invariant(static_cast<bool>(given), "input '{}' is external and no memory is given", input.name);
  View view = given(input.name);
  invariant(view.type == value.type, "input '{}' is {}; the memory given is {}", input.name, to_string(value.type),
            to_string(view.type));
  const Tier tier = plan.buffers[static_cast<size_t>(value.buffer)].tier;
  if (tier == Tier::kHost && view.memory == Memory::kDevice)
    fail(ErrorKind::kUnsupported,
         "plan '{}' reads '{}' on the host; it lies in the memory of device '{}'; give it a home there or there "
         "(parallel.home), in all that reads it",
         plan.name, input.name, device);
  invariant(tier != Tier::kDisk || view.memory == Memory::kDisk,
            "input '{}' lies on the disk; the memory given does not", input.name);
  return view;
}

}  // namespace trireme
