// How much background work may be under way at a time. The bytes that it reads stay in use until something waits for
// it, which may be the end of the step.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/exec/plan/execution_plan.h"
#include "trireme/ir/graph.h"

namespace trireme {

// Two communications that give each rank a part of what they read, and two moves of each way from the device's memory,
// are enough to keep links, or the lane, busy: the third waits for the first. Ops on the host keep what has come to
// them: the next waits for the first where they would have more than a quarter of what comes to all of them, and 64
// MiB. What came before the first of them, as gradients that are clipped together do, has its room anyway and is not
// counted.
class BoundsInFlight {
 public:
  explicit BoundsInFlight(const Graph& graph);

  // Actions are given in their order, each with the waits that it has; those that bound what is under way are added.
  void bound(int number, Action& action, const Node& node);

 private:
  int64_t bytes_that_came(const Node& node) const;
  void bound_two(int number, Action& action, std::vector<int>& under_way, bool is_one);
  void bound_on_host(int number, Action& action, const Node& node);
  void forget_waited_for(std::vector<int>& under_way);

  const Graph& graph_;
  std::vector<char> is_waited_for_;  // per action, by one that was given
  std::vector<int64_t> came_;        // per action, bytes that came to it, of those on the host
  NodeId first_on_host_ = 0;
  int64_t most_on_host_ = 0;
  std::vector<int> scattering_, leaving_, stored_, on_host_;  // what no action waits for yet
};

}  // namespace trireme
