// What is wrong with a plan as such, of one rank. See execution_plan.h.
#include <algorithm>
#include <queue>
#include <set>

#include "trireme/base/error.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/exec/plan/parts.h"

namespace trireme {
namespace {

using Found = std::vector<std::string>;

// Goes through the buffers in the order in which they come into use, and knows which of a tier are in use, by where
// they lie. Until two share bytes these lie apart, so that only neighbours can.
class LiveBuffers {
 public:
  LiveBuffers(const ExecutionPlan& plan, Tier tier, Found& out) : plan_(plan), out_(out) {
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      const Buffer& buffer = plan.buffers[i];
      if (buffer.tier == tier && buffer.offset >= 0 && buffer.bytes > 0) order_.push_back(static_cast<int>(i));
    }
    std::ranges::stable_sort(order_, {}, [&](int id) { return buffer_of(id).first; });
  }

  void run() {
    for (const int id : order_) {
      while (!ends_.empty() && ends_.top().first < buffer_of(id).first) {
        live_.erase({buffer_of(ends_.top().second).offset, ends_.top().second});
        ends_.pop();
      }
      check(id);
      live_.insert({buffer_of(id).offset, id});
      ends_.emplace(buffer_of(id).last, id);
    }
  }

 private:
  using End = std::pair<int, int>;  // the last action, and the buffer

  const Buffer& buffer_of(int id) const { return plan_.buffers[static_cast<size_t>(id)]; }
  int64_t end_of(int id) const { return buffer_of(id).offset + buffer_of(id).bytes; }

  void check(int id) {
    auto after = live_.lower_bound({buffer_of(id).offset, id});
    if (after != live_.begin() && end_of(std::prev(after)->second) > buffer_of(id).offset)
      report(std::prev(after)->second, id);
    for (; after != live_.end() && after->first < end_of(id); ++after) report(id, after->second);
  }

  void report(int below, int above) {
    out_.push_back(
        fmt::format("buffers {} and {} share bytes at {} while both are live", below, above, buffer_of(above).offset));
  }

  const ExecutionPlan& plan_;
  Found& out_;
  std::vector<int> order_;
  std::set<std::pair<int64_t, int>> live_;  // by offset
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

void verify_buffers(const ExecutionPlan& plan, Found& out) {
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& buffer = plan.buffers[i];
    const int64_t end = buffer.offset + buffer.bytes, bytes = plan.arena(buffer.tier).bytes;
    if (buffer.offset < 0 || end <= bytes) continue;
    out.push_back(fmt::format("buffer {} ends at {}, past the arena of {} bytes", i, end, bytes));
  }
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) LiveBuffers(plan, tier, out).run();
}

// Whether each value lies inside of a buffer; what follows goes by where they lie.
bool verify_values(const ExecutionPlan& plan, Found& out) {
  const size_t before = out.size();
  for (size_t id = 0; id < plan.values.size(); ++id) {
    const PlanValue& value = plan.values[id];
    if (value.buffer < 0 || value.buffer >= static_cast<int>(plan.buffers.size())) {
      out.push_back(fmt::format("value {} lies in buffer {}; the plan has {}", id, value.buffer, plan.buffers.size()));
    } else if (const int64_t room = plan.buffers[static_cast<size_t>(value.buffer)].bytes;
               value.offset < 0 || value.type.bytes() > room - value.offset) {
      out.push_back(fmt::format("value {} of {} bytes at {} does not lie inside its buffer of {}", id,
                                value.type.bytes(), value.offset, room));
    }
  }
  return out.size() == before;
}

// Goes through the actions in their order, and knows which of those in the background are under way, and what they use.
class Flights {
 public:
  Flights(const ExecutionPlan& plan, Found& out) : plan_(plan), out_(out) {}

  void run() {
    for (size_t i = 0; i < plan_.actions.size(); ++i) {
      const Action& action = plan_.actions[i];
      at_ = static_cast<int>(i);
      for (const int wait : action.waits) end(wait);
      const bool looks_only =
          action.op->traits.joins_in_place ||
          (action.op->traits.zero_cost_view && !action.in.empty() && !action.out.empty() && is_of(action));
      if (!action.op->traits.joins_in_place) {
        for (const int id : action.in) check(range_of(id), false);
      }
      if (!looks_only) {
        for (const int id : action.out) check(range_of(id), true);
      }
      if (action.scratch >= 0) check(range_of_buffer(action.scratch), true);
      if (in_background(action.lane)) begin(action);
    }
  }

 private:
  // Bytes of an arena, or of one buffer that lies outside of it.
  struct Range {
    Tier tier = Tier::kDevice;
    int outside = -1;
    int64_t begin = 0, end = 0;
  };
  struct Use {
    int action = 0;
    Range range;
    bool writes = false;
  };

  Range range_of_buffer(int id) const {
    const Buffer& buffer = plan_.buffers[static_cast<size_t>(id)];
    if (buffer.offset < 0) return {buffer.tier, id, 0, buffer.bytes};
    return {buffer.tier, -1, buffer.offset, buffer.offset + buffer.bytes};
  }
  Range range_of(int value) const {
    const PlanValue& v = plan_.values[static_cast<size_t>(value)];
    Range range = range_of_buffer(v.buffer);
    range.begin += v.offset;
    range.end = range.begin + v.type.bytes();
    return range;
  }
  // Whether the result is bytes of the operand.
  bool is_of(const Action& action) const {
    const Range in = range_of(action.in[0]), out = range_of(action.out[0]);
    return in.tier == out.tier && in.outside == out.outside && in.begin <= out.begin && out.end <= in.end;
  }

  void begin(const Action& action) {
    for (const int id : action.in) uses_.push_back({at_, range_of(id), false});
    for (const int id : action.out) uses_.push_back({at_, range_of(id), true});
    if (action.scratch >= 0) uses_.push_back({at_, range_of_buffer(action.scratch), true});
  }

  void end(int wait) {
    if (wait < 0 || wait >= at_ || !in_background(plan_.actions[static_cast<size_t>(wait)].lane)) {
      out_.push_back(
          fmt::format("action {} waits for {}, which is not an earlier action in the background", at_, wait));
      return;
    }
    std::erase_if(uses_, [&](const Use& use) { return use.action == wait; });
  }

  void check(const Range& range, bool writes) {
    for (const Use& use : uses_) {
      const bool apart = use.range.tier != range.tier || use.range.outside != range.outside ||
                         use.range.end <= range.begin || range.end <= use.range.begin;
      if (apart || !(writes || use.writes)) continue;
      out_.push_back(
          fmt::format("action {} ({}) {} bytes that action {} ({}) {} in the background; it must wait for it", at_,
                      plan_.actions[static_cast<size_t>(at_)].op->name, writes ? "writes" : "reads", use.action,
                      plan_.actions[static_cast<size_t>(use.action)].op->name, use.writes ? "writes" : "reads"));
      return;  // one finding for each value is enough
    }
  }

  const ExecutionPlan& plan_;
  Found& out_;
  std::vector<Use> uses_;
  int at_ = 0;
};

// What an op on the host reads, writes and works in lies in the host's memory.
void verify_host_ops(const ExecutionPlan& plan, Found& out) {
  const auto check = [&](size_t i, int buffer, std::string_view what) {
    const Tier tier = plan.buffers[static_cast<size_t>(buffer)].tier;
    if (tier == Tier::kHost) return;
    out.push_back(fmt::format("action {} ({}) runs on the host; {} lies in '{}'", i, plan.actions[i].op->name, what,
                              to_string(tier)));
  };
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    if (action.lane != Lane::kHost) continue;
    for (const int id : action.in) check(i, plan.values[static_cast<size_t>(id)].buffer, fmt::format("value {}", id));
    for (const int id : action.out) check(i, plan.values[static_cast<size_t>(id)].buffer, fmt::format("value {}", id));
    if (action.scratch >= 0) check(i, action.scratch, "its scratch");
  }
}

// Moves find their operands, and leave their results, in the tiers that they name.
void verify_moves(const ExecutionPlan& plan, Found& out) {
  const auto tier_of = [&](int value) {
    return plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(value)].buffer)].tier;
  };
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    if (!is_move(*action.op)) continue;
    const Move said = move_of(action.attrs), done{tier_of(action.in[0]), tier_of(action.out[0])};
    if (said == done) continue;
    out.push_back(fmt::format("action {} is a move from '{}' to '{}'; its values lie in '{}' and '{}'", i,
                              to_string(said.from), to_string(said.to), to_string(done.from), to_string(done.to)));
  }
}

// Actions of a call are what the call says.
void verify_calls(const ExecutionPlan& plan, Found& out) {
  const auto are = [&](std::span<const int> values, const std::vector<TensorType>& types) {
    return std::ranges::equal(values, types, {}, [&](int id) { return plan.values[static_cast<size_t>(id)].type; });
  };
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    if (action.call < 0) continue;
    if (action.call >= static_cast<int>(plan.calls.size())) {
      out.push_back(fmt::format("action {} is of call {}; the plan has {}", i, action.call, plan.calls.size()));
      continue;
    }
    const PlanCall& call = plan.calls[static_cast<size_t>(action.call)];
    if (action.op == call.op && action.attrs.text() == call.attrs.text() && are(action.in, call.in) &&
        are(action.out, call.out)) {
      continue;
    }
    out.push_back(
        fmt::format("action {} ({}) is not what its call {} ({}) is", i, action.op->name, action.call, call.op->name));
  }
}

}  // namespace

std::vector<std::string> verify(const ExecutionPlan& plan) {
  Found out;
  if (plan.crew < 0 || plan.crew >= plan.crews) {
    out.push_back(fmt::format("is of crew {} of {}", plan.crew, plan.crews));
  }
  verify_buffers(plan, out);
  if (!verify_values(plan, out)) return out;
  Flights(plan, out).run();
  verify_moves(plan, out);
  verify_host_ops(plan, out);
  verify_parts(plan, out);
  verify_calls(plan, out);
  return out;
}

}  // namespace trireme
