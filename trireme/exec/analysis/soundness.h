// Soundness of the communication of all ranks together, checked before a byte moves and for any number of ranks:
//
// - Matching: on every communicator all members start the same operations in the same order, equal in kind,
//   element type, counts, root and reduction; every message has a sender and a receiver, who agree on its type.
// - No deadlock: the events of a step (events.h) have no circle.
//
// A communicator is an ordered list of ranks. Together with verify (execution_plan.h), which checks what one rank does
// on its own, it means that a step ends.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/exec/analysis/events.h"

namespace trireme {

// Rank r starts calls[r]. Each finding names the rank and its first action that differs, and what the other does there;
// or the actions of a circle, and with whom. Empty when sound. `names` are those of ranks in findings: "rank 0", where
// none are given.
std::vector<std::string> check_communication(const Calls& calls, std::span<const std::string> names = {});

// All ranks of the mesh run this one plan, so their operations stand in one order and cannot wait for each other in a
// circle; what is left to check is each action on its own: its axes make groups of the size it says, counts and types
// of operands and results belong together, the root is a member, a message goes to another crew. Costs no more than the
// number of actions and, once for each list of axes, of ranks.
std::vector<std::string> check_communication(const ExecutionPlan& plan);

// A job of several plans: crew i runs crews[i]. Each plan on its own, and then all together. Costs no more than the
// number of actions, however many ranks a crew has, since all of them do the same.
std::vector<std::string> check_communication(std::span<const ExecutionPlan* const> crews);

}  // namespace trireme
