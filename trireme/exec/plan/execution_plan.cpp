#include "trireme/exec/plan/execution_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/memory/memory_plan.h"
#include "trireme/op/message.h"

namespace trireme {
namespace {

template <class Items>
const auto& by_name(const Items& items, std::string_view name, std::string_view what, const std::string& plan) {
  for (const auto& item : items) {  // takes no memory: steps look their inputs up
    if (item.name == name) return item;
  }
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.name);
  fail(ErrorKind::kNotFound, "plan '{}' has no {} '{}'.{}", plan, what, name, suggestion(name, names));
}

}  // namespace

Lane lane_of(const OpDef& op, const Attrs& attrs, bool on_host) {
  if (is_move(op)) {
    const Move move = move_of(attrs);
    if (move.meets_disk()) return move.from == Tier::kDisk ? Lane::kLoad : Lane::kStore;
    return move.to == Tier::kDevice ? Lane::kIn : Lane::kOut;
  }
  if (is_message(op)) return Lane::kMessage;
  if (is_communication(op)) return Lane::kComm;
  return on_host && !op.collective && !op.traits.zero_cost_view ? Lane::kHost : Lane::kCompute;
}

int64_t ExecutionPlan::alignment_of(Tier tier) const {
  if (tier == Tier::kDevice) return alignment;
  return tier == Tier::kDisk ? kSectorBytes : kBufferAlignment;
}

const PlanInput& ExecutionPlan::input(std::string_view wanted) const {
  return by_name(inputs, wanted, "input", name);
}
const PlanOutput& ExecutionPlan::output(std::string_view wanted) const {
  return by_name(outputs, wanted, "output", name);
}

std::vector<int64_t> bytes_by_holding(const ExecutionPlan& plan, Tier tier) {
  const auto steps = static_cast<int>(plan.actions.size());
  const int64_t alignment = plan.alignment_of(tier);
  std::vector<int64_t> live(static_cast<size_t>(steps) + 3, 0);  // steps -1 .. end, and one past
  for (const Buffer& b : plan.buffers) {
    if (b.offset < 0 || b.tier != tier) continue;
    live[static_cast<size_t>(b.first + 1)] += align_buffer(b.bytes, alignment);
    live[static_cast<size_t>(b.last + 2)] -= align_buffer(b.bytes, alignment);
  }
  int peak = -1;
  int64_t now = 0;
  int64_t most = -1;
  for (int step = -1; step <= steps; ++step) {
    now += live[static_cast<size_t>(step + 1)];
    if (now > most) {
      most = now;
      peak = step;
    }
  }
  std::vector<int64_t> out(kHoldings, 0);
  for (const Buffer& b : plan.buffers) {
    if (b.offset >= 0 && b.tier == tier && b.first <= peak && peak <= b.last) {
      out[static_cast<size_t>(b.holding)] += align_buffer(b.bytes, alignment);
    }
  }
  return out;
}

std::string host_ops_text(const ExecutionPlan& plan) {
  std::vector<std::string_view> names;
  std::map<std::string_view, std::set<std::string_view>> scopes;
  std::map<std::string_view, int> counts;
  for (const Action& action : plan.actions) {
    if (action.lane != Lane::kHost) continue;
    if (counts[action.op->name]++ == 0) names.push_back(action.op->name);
    scopes[action.op->name].insert(action.scope);
  }
  std::string out;
  for (const std::string_view name : names) {
    const std::string count = counts.at(name) > 1 ? fmt::format("{} ", counts.at(name)) : "";
    const std::string_view scope = scopes.at(name).size() == 1 ? *scopes.at(name).begin() : "";
    out += fmt::format("{}{}{}{}", out.empty() ? "" : ", ", count, name,
                       scope.empty() ? "" : fmt::format(" at '{}'", scope));
  }
  return out;
}

double flops_per_step(const ExecutionPlan& plan) {
  double flops = 0;
  for (const Action& action : plan.actions) {
    if (!action.op->cost) continue;
    std::vector<TensorType> in, out;
    for (const int id : action.in) in.push_back(plan.values[static_cast<size_t>(id)].type);
    for (const int id : action.out) out.push_back(plan.values[static_cast<size_t>(id)].type);
    flops += action.op->cost.get()({in, out, action.attrs}).flops;
  }
  return flops;
}

}  // namespace trireme
