#include "trireme/exec/plan/reuse.h"

#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/exec/plan/call_text.h"

namespace trireme {
namespace {

std::vector<TensorType> types_of(const ExecutionPlan& plan, std::span<const int> values) {
  std::vector<TensorType> out;
  for (const int id : values) out.push_back(plan.values[static_cast<size_t>(id)].type);
  return out;
}

// By this actions are equal.
std::string kind_of(const ExecutionPlan& plan, const Action& action) {
  std::string out = fmt::format("{}{}", action.op->name, action.attrs.text());
  for (const auto* values : {&action.in, &action.out}) {
    for (const TensorType& type : types_of(plan, *values)) out += " " + to_string(type);
    out += ";";
  }
  return out;
}

// Collectives of each kind, in the order of the plan.
std::map<std::string, std::vector<int>> equal_collectives(const ExecutionPlan& plan) {
  std::map<std::string, std::vector<int>> out;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (plan.actions[i].lane == Lane::kComm) out[kind_of(plan, plan.actions[i])].push_back(static_cast<int>(i));
  }
  return out;
}

}  // namespace

void reuse_collectives(ExecutionPlan& plan, const ReuseOptions& options) {
  invariant(plan.calls.empty(), "plan '{}' has calls already", plan.name);
  require(options.above >= 1, "collective_reuse_above is {}; it must be 1 or more", options.above);
  const std::map<std::string, std::vector<int>> equal = equal_collectives(plan);
  std::map<int, const std::vector<int>*> all_of;  // by action, of those that may become calls
  for (const auto& [kind, actions] : equal) {
    if (static_cast<int64_t>(actions.size()) <= options.above) continue;
    for (const int action : actions) all_of.emplace(action, &actions);
  }
  std::map<const std::vector<int>*, int> call_of;
  int64_t replaced = 0;
  for (const auto& [number, same] : all_of) {
    if (replaced++ == options.limit) break;
    Action& action = plan.actions[static_cast<size_t>(number)];
    const auto [call, is_new] = call_of.emplace(same, static_cast<int>(plan.calls.size()));
    if (is_new) {
      plan.calls.push_back({action.op, action.attrs, types_of(plan, action.in), types_of(plan, action.out)});
    }
    action.call = call->second;
  }
}

ReuseSavings reuse_savings(const ExecutionPlan& plan, int64_t per_stream) {
  ReuseSavings out{.calls = static_cast<int64_t>(plan.calls.size())};
  const auto streams = [&](int64_t collectives) { return (collectives + per_stream - 1) / per_stream; };
  for (const auto& [kind, actions] : equal_collectives(plan)) {
    std::set<int> calls;
    int64_t alone = 0;
    for (const int action : actions) {
      const int call = plan.actions[static_cast<size_t>(action)].call;
      if (call < 0) {
        ++alone;
      } else {
        ++out.actions;
        calls.insert(call);
      }
    }
    out.streams_before += streams(static_cast<int64_t>(actions.size()));
    out.streams_after += streams(alone) + static_cast<int64_t>(calls.size());
  }
  out.plan_bytes = bytes_saved_by_calls(plan);
  return out;
}

}  // namespace trireme
