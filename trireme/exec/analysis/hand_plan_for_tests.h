// Plans written by hand, for tests: one action after the other, on tensors of one type, each value in its own bytes.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/memory/memory_plan.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/op/message.h"
#include "trireme/op/registry.h"
#include "trireme/op/structural.h"

namespace trireme {

class HandPlan {
 public:
  HandPlan(std::string_view mesh, int crew, int crews, TensorType type = {DType::kF32, {4}}) : type_(type) {
    plan_.name = fmt::format("crew{}", crew);
    plan_.mesh = parse_mesh(mesh);
    plan_.crew = crew;
    plan_.crews = crews;
  }

  int input(const std::string& name) {
    const int value = new_value(-1);
    plan_.inputs.push_back({name, Role::kData, value, {}});
    return value;
  }
  // The exponential of the first value; waits for what makes the others. Of no values: a constant.
  int compute(const std::vector<int>& values, const std::string& scope = "") {
    const int out = new_value(next());
    if (values.empty()) {
      add("full", Attrs::of(FullAttrs{type_.dtype, type_.shape, 1}), {}, {out}, scope);
    } else {
      add("exp", op("exp").parse_attrs("{}"), {values[0]}, {out}, scope);
    }
    for (const int value : values) wait_for_value(value);
    return out;
  }
  void send(int value, int to, int tag, const std::string& scope = "") {
    add("send", Attrs::of(SendAttrs{to, tag}), {value}, {}, scope);
    wait_for_value(value);
  }
  int recv(int from, int tag, const std::string& scope = "") {
    const int out = new_value(next());
    add("recv", Attrs::of(RecvAttrs{from, tag, type_.dtype, type_.shape}), {}, {out}, scope);
    return out;
  }
  int all_reduce(int value, const std::vector<int64_t>& axes, const std::string& scope = "") {
    const std::vector<int> of_mesh(axes.begin(), axes.end());
    const int out = new_value(next());
    add("all_reduce", Attrs::of(CollectiveAttrs{.axes = axes, .size = plan_.mesh.size_of(of_mesh)}), {value}, {out},
        scope);
    wait_for_value(value);
    return out;
  }
  // The last action, and all that it is to wait for.
  int last() const { return next() - 1; }
  void wait(int action) { plan_.actions.back().waits.push_back(action); }
  void output(const std::string& name, int value) { plan_.outputs.push_back({name, value}); }

  ExecutionPlan finish() {
    for (Buffer& buffer : plan_.buffers) buffer.last = next();
    plan_.arena().lower_bound = plan_.arena().bytes;
    return plan_;
  }

 private:
  int next() const { return static_cast<int>(plan_.actions.size()); }

  int new_value(int first) {
    plan_.buffers.push_back({.bytes = type_.bytes(), .offset = plan_.arena().bytes, .first = first});
    plan_.arena().bytes += align_buffer(type_.bytes());
    plan_.values.push_back(
        {type_, Layout::replicated(type_.shape.rank()), type_.shape, static_cast<int>(plan_.buffers.size()) - 1});
    made_by_.push_back(first);
    return static_cast<int>(plan_.values.size()) - 1;
  }

  void add(std::string_view name, Attrs attrs, std::vector<int> in, std::vector<int> out, const std::string& scope) {
    const OpDef& def = op(name);
    Action action{.lane = lane_of(def, attrs), .op = &def, .attrs = std::move(attrs), .scope = scope};
    if (def.kernel) action.kernel = "reference";
    action.in = std::move(in);
    action.out = std::move(out);
    plan_.actions.push_back(std::move(action));
  }

  void wait_for_value(int value) {
    const int from = made_by_[static_cast<size_t>(value)];
    if (from < 0 || !in_background(plan_.actions[static_cast<size_t>(from)].lane)) return;
    Few<int, 2>& waits = plan_.actions.back().waits;
    if (std::find(waits.begin(), waits.end(), from) == waits.end()) waits.push_back(from);
  }

  TensorType type_;
  ExecutionPlan plan_;
  std::vector<int> made_by_;  // by value: an action, or -1
};

// The communication of crews, by a plan of each; and what all their ranks call.
inline std::vector<std::string> check_crews(const std::vector<ExecutionPlan>& plans) {
  std::vector<const ExecutionPlan*> crews;
  for (const ExecutionPlan& plan : plans) crews.push_back(&plan);
  return check_communication(crews);
}

inline Calls calls_of_ranks(const std::vector<ExecutionPlan>& plans) {
  Calls out;
  for (const ExecutionPlan& plan : plans) {
    for (int64_t rank = 0; rank < plan.mesh.devices(); ++rank) out.push_back(calls_of(plan, rank));
  }
  return out;
}

}  // namespace trireme
