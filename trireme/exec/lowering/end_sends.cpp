#include "trireme/exec/lowering/end_sends.h"

#include <algorithm>
#include <vector>

namespace trireme {
namespace {

struct Sent {
  int action = 0;
  Tier tier = Tier::kDevice;
  int64_t begin = 0, end = 0;  // bytes of the tier's arena; below 0: they are not in it
};

Sent sent_from(const ExecutionPlan& plan, int action, int id, int64_t skipped, int64_t bytes) {
  const Buffer& buffer = plan.buffers[static_cast<size_t>(id)];
  if (buffer.offset < 0) return {action, buffer.tier, -1, -1};
  return {action, buffer.tier, buffer.offset + skipped, buffer.offset + skipped + bytes};
}

Sent sent_of(const ExecutionPlan& plan, int action, int value) {
  const PlanValue& v = plan.values[static_cast<size_t>(value)];
  return sent_from(plan, action, v.buffer, v.offset, v.type.bytes());
}

// It makes no bytes: they lie in its operand already.
bool only_looks(const ExecutionPlan& plan, const Action& action) {
  const auto buffer = [&](int value) { return plan.values[static_cast<size_t>(value)].buffer; };
  return action.op->traits.zero_cost_view && buffer(action.in[0]) == buffer(action.out[0]);
}

}  // namespace

void end_sends(ExecutionPlan& plan) {
  std::vector<Sent> under_way;
  for (int i = 0; i < static_cast<int>(plan.actions.size()); ++i) {
    Action& action = plan.actions[static_cast<size_t>(i)];
    const auto end = [&](const Sent& written) {
      if (written.begin < 0) return;
      std::erase_if(under_way, [&](const Sent& sent) {
        const bool apart = sent.tier != written.tier || sent.end <= written.begin || written.end <= sent.begin;
        if (apart) return false;
        if (std::ranges::find(action.waits, sent.action) == action.waits.end()) action.waits.push_back(sent.action);
        return true;
      });
    };
    if (!only_looks(plan, action)) {
      for (const int id : action.out) end(sent_of(plan, i, id));
    }
    if (action.scratch >= 0)
      end(sent_from(plan, i, action.scratch, 0, plan.buffers[static_cast<size_t>(action.scratch)].bytes));
    const bool sends = action.lane == Lane::kMessage && action.out.empty();
    if (sends && sent_of(plan, i, action.in[0]).begin >= 0) under_way.push_back(sent_of(plan, i, action.in[0]));
  }
}

}  // namespace trireme
