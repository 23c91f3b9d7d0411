// Events: what starts and what ends in a step on all ranks together, and which event must come before which. Soundness
// looks for a circle among them, virtual time for their order (docs/design/events.md).
//
// Each start of an operation on a rank is an event, and each operation has one end: a collective for all its members, a
// message for both sides. The order is:
//  - a rank starts its operations in the plan's order, each after the ends of those that it waits for,
//  - an operation ends after all its members have started it: nothing is taken to be buffered,
//  - the collectives of one communicator end in their turn, as the engine runs them (comm/engine),
//  - operations of different communicators, exchanges and messages run side by side.
// Compute actions cannot be part of a circle: whatever one waits for, the next operation of its rank waits for too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// The start of one operation on one rank.
struct CommCall {
  enum class Kind {
    kCollective,
    kExchange,  // messages within a group: it waits for no turn
    kSend,
    kRecv,
  };

  std::vector<int> ranks;  // of the communicator; of a message: who sends, who receives
  SharedText what;         // equal on all members: "all_reduce of f32 x 12, f32 x 4 by sum"; of a message: "f32 x 12"
  int action = 0;
  SharedText scope = {};
  Kind kind = Kind::kCollective;
  int64_t tag = 0;              // of a message
  std::vector<int> waits = {};  // earlier calls of this rank, by their places among its calls, that have ended
};
using Calls = std::vector<std::vector<CommCall>>;  // of each rank, in the order of their starts

// What the ranks do in an action: "all_reduce of f32 x 12 by sum".
std::string communication_text(const ExecutionPlan& plan, const Action& action);

// What a rank of the plan's mesh starts in a step. Ranks are those of the world.
std::vector<CommCall> calls_of(const ExecutionPlan& plan, int64_t rank);

// The same for whole crews, whose ranks all do the same, instead of ranks: a crew has its collectives alone, and sends
// to crews. Where the crews have no circle, their ranks have none.
Calls calls_of_crews(std::span<const ExecutionPlan* const> crews);

class EventGraph {
 public:
  struct Start {
    int who = 0;   // a rank, or a crew
    int call = 0;  // by its place among its calls
  };
  // `who` starts `call` only after the end of `after`; in_turn: both are of one communicator, and the former waits its
  // turn.
  struct Blocked {
    int who = 0;
    int call = 0;
    int after = 0;
    bool in_turn = false;
  };

  // The operations must match (soundness.h): every message has both sides.
  explicit EventGraph(const Calls& calls);

  int operation_of(Start start) const;
  int operations() const { return static_cast<int>(members_.size()); }
  // All starts in an order in which they can happen. Those that never do, because of a circle, are left out.
  const std::vector<Start>& order() const { return order_; }
  // Each waits for the next, and the last for the first. Empty when there is no circle.
  std::vector<Blocked> circle() const;

 private:
  int node_of(Start start) const { return first_[static_cast<size_t>(start.who)] + start.call; }
  bool is_end(int node) const { return node >= starts_; }
  Start start_of(int node) const;
  int call_of(int who, int operation) const;
  void find_operations(const Calls& calls);
  void add_edges(const Calls& calls);
  void sort();

  int starts_ = 0;
  std::vector<int> first_;                   // by who: the node of its first start
  std::vector<int> operation_;               // by start
  std::vector<std::vector<Start>> members_;  // by operation
  std::vector<int> turn_after_;              // by operation: the one before it in its communicator, or -1
  std::vector<int> edge_begin_, edges_;      // successors, by node
  std::vector<int> left_;                    // by node: predecessors that never happen
  std::vector<Start> order_;
};

}  // namespace trireme
