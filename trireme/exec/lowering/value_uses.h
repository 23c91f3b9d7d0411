// ValueUses: from when to when in a step the bytes of each value are needed, given the step's actions and what they
// wait for. It decides which values may share a buffer, and which results may overwrite operands.
#pragma once

#include <span>
#include <vector>

#include "trireme/base/few.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/ir/graph.h"
#include "trireme/op/message.h"

namespace trireme {

// "The end" is the number of actions. What it is made of outlives it.
class ValueUses {
 public:
  // `actions` are the graph's nodes; `maker`: of values, the action that makes it, or -1.
  ValueUses(const Graph& graph, std::span<const Action> actions, std::span<const int> maker);

  // Whether the action makes nothing: its result is a look at its operand. A look that is a result of the step, at what
  // the step replaces, must stay what it was: it is a copy, and no view.
  bool is_view(int action) const;
  // Nobody reads what a send makes, so nobody waits for it until its bytes are used again (end_sends.h).
  bool is_send(int action) const { return lane(action) == Lane::kMessage && node(action).outputs.empty(); }
  // The first action that waits for one in the background; the end: none does.
  int waited(int action) const { return waited_[static_cast<size_t>(action)]; }

  // The last action that touches the value's bytes; the end: they are there after the step.
  int last(ValueId id) const { return last_[static_cast<size_t>(id)]; }
  bool is_output(ValueId id) const { return is_output_[static_cast<size_t>(id)] != 0; }
  // Whether an action after this one reads the value itself.
  bool read_after(ValueId id, int action) const;
  // Whether background work that was started before the action may still read or write the value when the action
  // starts. A send of a persistent value (`stays`) ends before the value is overwritten; for a transient value, using
  // other bytes is better than waiting.
  bool in_flight(ValueId id, int action, bool stays) const;

  // Of values: the inputs that are it after the step.
  std::span<const Few<ValueId, 2>> replaces() const { return replaces_; }

 private:
  const Node& node(int action) const { return graph_.nodes()[static_cast<size_t>(action)]; }
  Lane lane(int action) const { return actions_[static_cast<size_t>(action)].lane; }
  Message message(int action) const { return message_of(def_of(node(action)), node(action).attrs); }
  void extend(ValueId id, int to);

  void find_replaced();
  void find_copied_views();
  void find_waited();
  void find_last();
  void keep_sent();
  void keep_under_views();
  void find_readers();

  const Graph& graph_;
  std::span<const Action> actions_;
  std::span<const int> maker_;
  int end_;
  std::vector<int> waited_;                      // of actions
  std::vector<char> is_copied_;                  // of actions
  std::vector<int> last_, last_read_;            // of values
  std::vector<char> is_output_;                  // of values
  std::vector<Few<ValueId, 2>> replaces_;        // of values
  std::vector<Few<int, 2>> used_in_background_;  // of values: the actions that read or write it there
};

}  // namespace trireme
