// Virtual time: how long a step takes on all ranks, from the times of its actions and the order of its events
// (events.h, docs/design/events.md).
//
// Each rank has a clock for each lane. The clock of compute goes through the actions in their order: a compute action
// takes its time, a background action is started and takes none, and where the plan waits, so does the clock. The other
// lanes do one thing after the other beside it. What a step leaves running on the host (step_border.h) continues under
// the next step: the modelled step follows others, and what it leaves running is cut off at its end. A collective
// begins on all its members once the last of them has started it and its lane is free there. A message leaves once it
// has been sent and the earlier messages of its rank have left; it ends, for both sides, once it has arrived and has
// been asked for. Packing and starting take no time. While a collective, or a message that a rank sends, is under way
// there, computing loses the share `overlap_slowdown` of that time, which counts as exposed. Other lanes do not slow
// each other down.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "trireme/cost/op_seconds.h"
#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// By action, of a rank of the plan's mesh, by these rates.
std::vector<double> action_seconds(const ExecutionPlan& plan, const Rates& rates);

struct VirtualTimeOptions {
  std::vector<std::vector<double>> seconds;  // by crew and action; of a message the sender's count
  // By rank of the world; empty: all are alike.
  std::vector<double> slowness = {};  // how many times as long its compute actions take
  std::vector<double> late_s = {};    // how much later it begins
  double overlap_slowdown = 0;        // Machine::overlap_slowdown
};

struct LaneTime {
  double busy_s = 0;     // it does something. A message keeps its sender's lane busy
  double exposed_s = 0;  // of background lanes: something moves, and compute waits for it or is slowed down by it
};

// From late_s to the end, the compute lane is busy, waits for what moves or loses time to it (exposed), or waits for
// other ranks.
struct RankTime {
  double late_s = 0;
  double end_s = 0;
  double waiting_s = 0;  // for other ranks, which have not started what this one waits for
  std::array<LaneTime, kLanes> lanes;

  const LaneTime& lane(Lane which) const { return lanes[static_cast<size_t>(which)]; }
};

// A compute action from its begin to its end; one in the background from its start to its end, and how long compute
// waited, or was held up, while it moved.
struct ActionSpan {
  double begin_s = 0, end_s = 0;
  double exposed_s = 0;
};

struct VirtualTime {
  double makespan_s = 0;                       // until the last rank ends
  std::vector<RankTime> ranks;                 // of the world
  std::vector<std::vector<ActionSpan>> spans;  // of the first rank of each crew, by action

  double idle_share() const;  // of all ranks' time until the makespan, in which they do not compute: the bubble
};

// Crew i runs crews[i]; the plans are sound (check_communication). Ranks of one crew go through one order, so that
// there is no queue of events: the cost is that of a few additions for each rank and action.
VirtualTime virtual_time(std::span<const ExecutionPlan* const> crews, const VirtualTimeOptions& options);

// Bytes of a tier's arena in use from a time on: at the step's begin, and as each action begins. A persistent
// buffer always is.
struct LiveBytes {
  double at_s = 0;
  int64_t bytes = 0;
  std::array<int64_t, kHoldings> kinds = {};  // by Holding; they add up to it
};
std::vector<LiveBytes> live_bytes(const ExecutionPlan& plan, std::span<const ActionSpan> spans,
                                  Tier tier = Tier::kDevice);

}  // namespace trireme
