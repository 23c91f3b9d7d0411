#include "trireme/exec/plan.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/exec/memory_plan.h"

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

bool overlap_in_time(const Buffer& a, const Buffer& b) {
  return a.first <= b.last && b.first <= a.last;
}
bool overlap_in_space(const Buffer& a, const Buffer& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace

const PlanInput& ExecutionPlan::input(std::string_view wanted) const {
  return by_name(inputs, wanted, "input", name);
}
const PlanOutput& ExecutionPlan::output(std::string_view wanted) const {
  return by_name(outputs, wanted, "output", name);
}

std::vector<int64_t> bytes_by_holding(const ExecutionPlan& plan) {
  const auto steps = static_cast<int>(plan.actions.size());
  std::vector<int64_t> live(static_cast<size_t>(steps) + 3, 0);  // steps -1 .. end, and one past
  for (const Buffer& b : plan.buffers) {
    if (b.offset < 0) continue;
    live[static_cast<size_t>(b.first + 1)] += align_buffer(b.bytes);
    live[static_cast<size_t>(b.last + 2)] -= align_buffer(b.bytes);
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
    if (b.offset >= 0 && b.first <= peak && peak <= b.last) {
      out[static_cast<size_t>(b.holding)] += align_buffer(b.bytes);
    }
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

std::vector<std::string> verify(const ExecutionPlan& plan) {
  std::vector<std::string> out;
  std::vector<int> order(plan.buffers.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return plan.buffers[static_cast<size_t>(a)].offset < plan.buffers[static_cast<size_t>(b)].offset;
  });
  for (size_t i = 0; i < order.size(); ++i) {
    const Buffer& a = plan.buffers[static_cast<size_t>(order[i])];
    if (a.offset < 0) continue;
    if (a.offset + a.bytes > plan.arena_bytes) {
      out.push_back(fmt::format("buffer {} ends at {}, past the arena of {} bytes", order[i], a.offset + a.bytes,
                                plan.arena_bytes));
    }
    for (size_t j = i + 1; j < order.size(); ++j) {
      const Buffer& b = plan.buffers[static_cast<size_t>(order[j])];
      if (b.offset >= a.offset + a.bytes) break;
      if (overlap_in_time(a, b) && overlap_in_space(a, b)) {
        out.push_back(
            fmt::format("buffers {} and {} share bytes at {} while both are live", order[i], order[j], b.offset));
      }
    }
  }
  std::vector<int> producer(plan.values.size(), -1);
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    for (const int wait : action.waits) {
      if (wait < 0 || wait >= static_cast<int>(i) || plan.actions[static_cast<size_t>(wait)].lane != Lane::kComm) {
        out.push_back(fmt::format("action {} waits for {}, which is not an earlier communication", i, wait));
      }
    }
    for (const int id : action.in) {
      const int from = producer[static_cast<size_t>(id)];
      if (from >= 0 && plan.actions[static_cast<size_t>(from)].lane == Lane::kComm &&
          std::find(action.waits.begin(), action.waits.end(), from) == action.waits.end()) {
        out.push_back(fmt::format("action {} reads value {} of communication {} without waiting", i, id, from));
      }
    }
    for (const int id : action.out) producer[static_cast<size_t>(id)] = static_cast<int>(i);
  }
  for (size_t id = 0; id < plan.values.size(); ++id) {
    const PlanValue& value = plan.values[id];
    if (value.type.bytes() > plan.buffers[static_cast<size_t>(value.buffer)].bytes) {
      out.push_back(fmt::format("value {} of {} bytes is larger than its buffer", id, value.type.bytes()));
    }
  }
  return out;
}

}  // namespace trireme
