#include "trireme/exec/traffic.h"

#include <algorithm>

#include "trireme/exec/collective.h"
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

int64_t bytes_sent(const ExecutionPlan& plan, const Action& action, int64_t p) {
  if (action.op->name == "all_reduce") return all_reduce_bytes(plan, action, p);
  if (action.op->name == "broadcast") return bytes_of(plan, action.in) * (p - 1);  // the root's
  if (action.op->name == "ring_shift") return bytes_of(plan, action.in);
  return std::max(bytes_of(plan, action.in), bytes_of(plan, action.out)) * (p - 1) / p;
}

}  // namespace

std::vector<PlanTraffic> traffic_per_step(const ExecutionPlan& plan) {
  std::vector<PlanTraffic> out;
  for (const Action& action : plan.actions) {
    if (!is_communication(*action.op)) continue;
    const auto& attrs = action.attrs.as<CollectiveAttrs>();
    const std::string axes = print_axes(std::vector<int>(attrs.axes.begin(), attrs.axes.end()), plan.mesh);
    const auto same = [&](const PlanTraffic& t) { return t.op == action.op->name && t.axes == axes; };
    auto entry = std::find_if(out.begin(), out.end(), same);
    if (entry == out.end()) entry = out.insert(out.end(), {std::string(action.op->name), axes, 0, 0});
    ++entry->calls;
    entry->bytes += bytes_sent(plan, action, attrs.size);
  }
  return out;
}

}  // namespace trireme
