#include "trireme/exec/run/external_view.h"

#include "trireme/base/error.h"

namespace trireme {
namespace {

View external_view(const ExecutionPlan& plan, const PlanInput& input, const GivenMemory& given,
                   std::string_view device) {
  const PlanValue& value = plan.values[static_cast<size_t>(input.value)];
  invariant(static_cast<bool>(given), "input '{}' is external and no memory is given", input.name);
  View view = given(input.name);
  invariant(view.type == value.type, "input '{}' is {}; the memory given is {}", input.name, to_string(value.type),
            to_string(view.type));
  const Tier tier = plan.buffers[static_cast<size_t>(value.buffer)].tier;
  if (tier == Tier::kHost && view.memory == Memory::kDevice)
    fail(ErrorKind::kUnsupported,
         "plan '{}' reads '{}' on the host, but it lies in the memory of device '{}'; give it the same home, 'host' or "
         "'device', in every plan that reads it (parallel.home)",
         plan.name, input.name, device);
  invariant(tier != Tier::kDisk || view.memory == Memory::kDisk,
            "input '{}' lies on the disk; the memory given does not", input.name);
  return view;
}

// The host's bytes where kernels reach them.
View on_device(const View& view, Device& device, const CopiesToDevice& copies) {
  if (device.memory() == Memory::kHost) return view;
  const DeviceMemory& copy = copies.kept.emplace_back(device.allocate(view.bytes()));
  const View to{copy.bytes.data(), view.type, Memory::kDevice};
  copies.stream.copy(view, to);
  copies.stream.synchronize();
  return to;
}

}  // namespace

std::vector<View> views_of(const ExecutionPlan& plan, const TierMemory& memory, const GivenMemory& given,
                           Device& device, const CopiesToDevice& copies) {
  std::vector<View> out(plan.values.size());
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(plan.values[i].buffer)];
    if (buffer.offset >= 0) out[i] = memory.view_of(static_cast<int>(i));
  }
  for (const PlanInput& input : plan.inputs) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(input.value)].buffer)];
    if (buffer.offset >= 0) continue;
    View view = external_view(plan, input, given, device.name());
    if (view.memory == Memory::kHost && buffer.tier == Tier::kDevice) view = on_device(view, device, copies);
    for (size_t i = 0; i < plan.values.size(); ++i) {  // the input and all views of it
      if (&plan.buffers[static_cast<size_t>(plan.values[i].buffer)] != &buffer) continue;
      out[i] = view.with(plan.values[i].type);
      if (out[i].data != nullptr) out[i].data += plan.values[i].offset;
    }
  }
  return out;
}

}  // namespace trireme
