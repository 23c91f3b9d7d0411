// Soundness of the communication of all ranks together, checked before a byte moves and for any
// number of ranks:
//
// - Matching: on every communicator all members start the same operations in the same order, equal
//   in kind, element type, counts, root and reduction.
// - No deadlock: in the graph of all ranks' operations, with an edge wherever a rank starts one
//   before another, there is no cycle. Each rank is taken to do one operation after the other, as if
//   nothing could be buffered or overlap: what is sound so is sound with buffers too.
//
// A communicator is an ordered list of ranks. Together with verify (plan.h), which checks what one
// rank does on its own, it means that a step ends.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/exec/plan.h"

namespace trireme {

// One communication action of one rank.
struct CommCall {
  std::vector<int> ranks;  // of the communicator
  std::string what;        // "all_reduce of f32 x 12, f32 x 4 by sum": equal on all members
  int action = 0;
  std::string scope;
};

// What a rank of the plan's mesh starts in a step, in order.
std::vector<CommCall> calls_of(const ExecutionPlan& plan, int64_t rank);

// Rank r starts calls[r]. Each finding names the rank and its first action that differs, and what
// the other does there; or the actions of a cycle. Empty when sound.
std::vector<std::string> check_communication(const std::vector<std::vector<CommCall>>& calls);

// All ranks of the mesh run this one plan, so their operations stand in one order and cannot wait
// for each other in a circle; what is left to check is each action on its own: its axes make groups
// of the size it says, counts and types of operands and results belong together, the root is a
// member. Costs no more than the number of actions and, once for each list of axes, of ranks.
std::vector<std::string> check_communication(const ExecutionPlan& plan);

}  // namespace trireme
