#include "trireme/exec/lowering/value_uses.h"

#include <algorithm>
#include <map>
#include <utility>

namespace trireme {

ValueUses::ValueUses(const Graph& graph, std::span<const Action> actions, std::span<const int> maker)
    : graph_(graph),
      actions_(actions),
      maker_(maker),
      end_(static_cast<int>(actions.size())),
      waited_(actions.size(), end_),
      is_copied_(actions.size(), 0),
      last_(graph.values().size(), -1),
      last_read_(graph.values().size(), -1),
      is_output_(graph.values().size(), 0),
      replaces_(graph.values().size()),
      used_in_background_(graph.values().size()) {
  find_replaced();
  find_copied_views();
  find_waited();
  find_last();
  keep_sent();
  keep_under_views();
  find_readers();
}

bool ValueUses::is_view(int action) const {
  return def_of(node(action)).traits.zero_cost_view && is_copied_[static_cast<size_t>(action)] == 0;
}

bool ValueUses::read_after(ValueId id, int action) const {
  const int read = last_read_[static_cast<size_t>(id)];
  return read > action && read <= last(id);
}

bool ValueUses::in_flight(ValueId id, int action, bool stays) const {
  return std::ranges::any_of(used_in_background_[static_cast<size_t>(id)], [&](int other) {
    return other < action && waited(other) > action && !(stays && is_send(other));
  });
}

void ValueUses::extend(ValueId id, int to) {
  int& last = last_[static_cast<size_t>(id)];
  last = std::max(last, to);
}

void ValueUses::find_replaced() {
  for (const Output& output : graph_.outputs()) {
    is_output_[static_cast<size_t>(output.value)] = 1;
    if (output.updates != kNoValue) replaces_[static_cast<size_t>(output.value)].push_back(output.updates);
  }
}

void ValueUses::find_copied_views() {
  std::vector<char> is_replaced(graph_.values().size(), 0);
  for (const Output& output : graph_.outputs()) {
    if (output.updates != kNoValue) is_replaced[static_cast<size_t>(output.updates)] = 1;
  }
  for (const Output& output : graph_.outputs()) {
    const int from = maker_[static_cast<size_t>(output.value)];
    ValueId base = output.value;
    for (int i = from; i >= 0 && is_view(i); i = maker_[static_cast<size_t>(base)]) base = node(i).inputs[0];
    const bool replaced = base != output.updates && is_replaced[static_cast<size_t>(base)] != 0;
    if (replaced && base != output.value) is_copied_[static_cast<size_t>(from)] = 1;
  }
}

void ValueUses::find_waited() {
  for (int i = end_; i-- > 0;) {
    for (const int other : actions_[static_cast<size_t>(i)].waits) waited_[static_cast<size_t>(other)] = i;
  }
}

// What work in the background reads stays in use up to the first action that waits for it, which finds it free; what it
// writes, at least through that one.
void ValueUses::find_last() {
  for (const Output& output : graph_.outputs()) extend(output.value, end_);
  for (int i = 0; i < end_; ++i) {
    const bool is_waited_for = in_background(lane(i)) && !is_send(i);
    const int until = is_waited_for ? waited(i) : i;
    const bool ends_in_step = until > i && until < end_;
    const int read = until - (ends_in_step ? 1 : 0);
    for (const ValueId id : node(i).inputs) extend(id, read);
    for (const ValueId id : node(i).outputs) extend(id, until);
  }
}

// What is sent keeps its bytes until its answer is there (op/message.h): by then it has been asked for, and whoever
// uses the bytes next waits for no crew that waits for this one.
void ValueUses::keep_sent() {
  std::map<std::pair<int64_t, int64_t>, int> there;  // by crew and tag: the first action that waits for the message
  for (int i = end_; i-- > 0;) {
    for (const int other : actions_[static_cast<size_t>(i)].waits) {
      if (lane(other) == Lane::kMessage && !is_send(other)) there[{message(other).crew, message(other).tag}] = i;
    }
  }
  for (int i = 0; i < end_; ++i) {
    if (!is_send(i) || message(i).answer < 0) continue;
    const auto answer = there.find({message(i).crew, message(i).answer});
    extend(node(i).inputs[0], answer == there.end() ? end_ - 1 : answer->second);
  }
}

// A view keeps what it looks at alive.
void ValueUses::keep_under_views() {
  for (int i = end_; i-- > 0;) {
    if (is_view(i)) extend(node(i).inputs[0], last(node(i).outputs[0]));
  }
}

void ValueUses::find_readers() {
  for (int i = 0; i < end_; ++i) {
    const bool background = in_background(lane(i));
    for (const ValueId id : node(i).inputs) {
      last_read_[static_cast<size_t>(id)] = i;
      if (background) used_in_background_[static_cast<size_t>(id)].push_back(i);
    }
    for (const ValueId id : node(i).outputs) {
      if (background) used_in_background_[static_cast<size_t>(id)].push_back(i);
    }
  }
}

}  // namespace trireme
