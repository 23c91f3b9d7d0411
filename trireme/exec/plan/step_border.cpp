#include "trireme/exec/plan/step_border.h"

#include <algorithm>

namespace trireme {
namespace {

// Bytes of the host's arena.
struct HostBytes {
  int64_t begin = 0, end = 0;
  bool writes = false;
};

bool meet(const HostBytes& a, const HostBytes& b) {
  return a.begin < b.end && b.begin < a.end && (a.writes || b.writes);
}

class Border {
 public:
  explicit Border(const ExecutionPlan& plan) : plan_(plan) {}

  StepBorder run() {
    find_left();
    if (out_.left.empty()) return std::move(out_);
    std::vector<char> is_over(out_.left.size(), 0);
    out_.ends.resize(plan_.actions.size());
    for (size_t i = 0; i < plan_.actions.size(); ++i) {
      const std::vector<HostBytes> uses = bytes_of(plan_.actions[i]);
      for (size_t k = 0; k < out_.left.size(); ++k) {
        if (is_over[k] != 0 || !(out_.left[k] == static_cast<int>(i) || any_meet(uses, uses_[k]))) continue;
        out_.ends[i].push_back(static_cast<int>(k));
        is_over[k] = 1;
      }
    }
    find_used();
    return std::move(out_);
  }

 private:
  // Not what is copied when the step ends, or over which that is.
  void find_left() {
    std::vector<char> waited(plan_.actions.size(), 0);
    for (const Action& action : plan_.actions) {
      for (const int wait : action.waits) waited[static_cast<size_t>(wait)] = 1;
    }
    std::vector<HostBytes> copied;
    for (const PlanOutput& output : plan_.outputs) {
      if (output.updates < 0 || same_place(output.value, output.updates)) continue;
      add(output.value, true, copied);
      add(output.updates, true, copied);
    }
    for (size_t i = 0; i < plan_.actions.size(); ++i) {
      if (plan_.actions[i].lane != Lane::kHost || waited[i] != 0) continue;
      std::vector<HostBytes> uses = bytes_of(plan_.actions[i]);
      if (any_meet(uses, copied)) continue;
      out_.left.push_back(static_cast<int>(i));
      uses_.push_back(std::move(uses));
    }
  }

  void find_used() {
    out_.used.assign(plan_.values.size(), 0);
    for (size_t id = 0; id < plan_.values.size(); ++id) {
      std::vector<HostBytes> all;
      add(static_cast<int>(id), true, all);
      out_.used[id] = std::ranges::any_of(uses_, [&](const auto& uses) { return any_meet(all, uses); }) ? 1 : 0;
    }
  }

  const PlanValue& value_of(int id) const { return plan_.values[static_cast<size_t>(id)]; }
  const Buffer& buffer_of(int id) const { return plan_.buffers[static_cast<size_t>(value_of(id).buffer)]; }
  bool same_place(int a, int b) const {
    return value_of(a).buffer == value_of(b).buffer && value_of(a).offset == value_of(b).offset;
  }

  // What lies outside of the arena is of a plan that only reads it.
  void add(int id, bool writes, std::vector<HostBytes>& out) const {
    if (buffer_of(id).tier != Tier::kHost || buffer_of(id).offset < 0) return;
    const int64_t begin = plan_.offset_of(id);
    out.push_back({begin, begin + value_of(id).type.bytes(), writes});
  }

  std::vector<HostBytes> bytes_of(const Action& action) const {
    std::vector<HostBytes> out;
    if (action.op->traits.joins_in_place || looks_only(action)) return out;
    for (const int id : action.in) add(id, false, out);
    for (const int id : action.out) add(id, true, out);
    if (action.scratch >= 0) {
      const Buffer& scratch = plan_.buffers[static_cast<size_t>(action.scratch)];
      if (scratch.tier == Tier::kHost) out.push_back({scratch.offset, scratch.offset + scratch.bytes, true});
    }
    return out;
  }

  bool looks_only(const Action& action) const {
    return action.op->traits.zero_cost_view && !action.in.empty() && !action.out.empty() &&
           value_of(action.in[0]).buffer == value_of(action.out[0]).buffer;
  }

  static bool any_meet(const std::vector<HostBytes>& some, const std::vector<HostBytes>& others) {
    return std::ranges::any_of(some, [&](const HostBytes& a) {
      return std::ranges::any_of(others, [&](const HostBytes& b) { return meet(a, b); });
    });
  }

  const ExecutionPlan& plan_;
  StepBorder out_;
  std::vector<std::vector<HostBytes>> uses_;  // of those that are left
};

}  // namespace

StepBorder step_border(const ExecutionPlan& plan) {
  const bool any = std::ranges::any_of(plan.actions, [](const Action& action) { return action.lane == Lane::kHost; });
  return any ? Border(plan).run() : StepBorder();
}

}  // namespace trireme
