// How much background work may be under way at a time. The bytes that it reads stay in use until something waits for
// it, which may be the end of the step.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/exec/plan/execution_plan.h"
#include "trireme/ir/graph.h"

namespace trireme {

// Communications that give each rank a part of what they read, and moves in each direction from the device's memory:
// two at a time are enough to keep the links, or the lane, busy, and the third waits for the first. So it is with
// collectives whose results no pass reads, as gathers of updated weights, if the memory in which all that are under way
// are packed or staged would be more than 64 MiB. Ops on the host keep what has arrived for them in memory: the next
// one waits for the first if they would hold more than a quarter of what arrives for all of them, and more than 64 MiB.
// What arrived before the first of them started, such as gradients that are clipped together, takes its room anyway and
// is not counted.
class BoundsInFlight {
 public:
  explicit BoundsInFlight(const Graph& graph);

  // Actions are given in their order, each with the waits that it has and the bytes of memory that it takes beside
  // values; waits that bound what is under way are added.
  void bound(int number, Action& action, const Node& node, int64_t scratch_bytes);

 private:
  int64_t bytes_that_came(const Node& node) const;
  void bound_two(int number, Action& action, std::vector<int>& under_way, bool is_one);
  void bound_unread(int number, Action& action, const Node& node, int64_t scratch_bytes);
  void bound_on_host(int number, Action& action, const Node& node);
  int64_t bytes_of(const std::vector<int>& under_way) const;
  void forget_waited_for(std::vector<int>& under_way);

  const Graph& graph_;
  std::vector<char> is_waited_for_;  // per action, by one that was given
  std::vector<char> is_read_;        // per value, by a pass
  std::vector<int64_t> bytes_;       // per action: of those on the host, bytes that came to it; of others, of scratch
  NodeId first_on_host_ = 0;
  int64_t most_on_host_ = 0;
  std::vector<int> scattering_, unread_, leaving_, stored_, on_host_;  // what no action waits for yet
};

}  // namespace trireme
