#include "trireme/exec/run/end_copies.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Whether it is, and so in its place already.
bool is_on_disk(const ExecutionPlan& plan, const PlanOutput& output) {
  const PlanValue& from = plan.values[static_cast<size_t>(output.value)];
  const PlanValue& to = plan.values[static_cast<size_t>(output.updates)];
  const auto on_disk = [&](const PlanValue& value) {
    return plan.buffers[static_cast<size_t>(value.buffer)].tier == Tier::kDisk;
  };
  if (!on_disk(from) && !on_disk(to)) return false;
  if (from.buffer != to.buffer)
    fail(ErrorKind::kUnsupported,
         "plan '{}': '{}' replaces a value on the disk and lies elsewhere at the step's end; give what it replaces "
         "a home other than 'disk'",
         plan.name, output.name);
  return true;
}

}  // namespace

std::vector<std::pair<View, View>> end_copies(const ExecutionPlan& plan, std::span<const View> views) {
  std::vector<std::pair<View, View>> left, out;
  for (const PlanOutput& output : plan.outputs) {
    if (output.updates < 0) continue;
    const View from = views[static_cast<size_t>(output.value)];
    const View to = views[static_cast<size_t>(output.updates)];
    if (is_on_disk(plan, output)) continue;
    if (from.data != to.data) left.emplace_back(from, to);
  }
  while (!left.empty()) {
    const auto next = std::find_if(left.begin(), left.end(), [&](const auto& copy) {
      return std::none_of(left.begin(), left.end(),
                          [&](const auto& other) { return &other != &copy && other.first.data == copy.second.data; });
    });
    if (next == left.end()) {
      fail(ErrorKind::kUnsupported,
           "plan '{}': {} outputs exchange the values of the inputs they update; compute one of them into a new value",
           plan.name, left.size());
    }
    out.push_back(*next);
    left.erase(next);
  }
  return out;
}

}  // namespace trireme
