#include "trireme/train/report/late_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/exec/virtual_time.h"

namespace trireme {
namespace {

constexpr double kMissed = 1.15;

bool moves_between_tiers(const ExecutionPlan& plan) {
  return std::ranges::any_of(plan.actions, [](const Action& action) { return is_move(*action.op); });
}

// Of compute how long it works, of the others how long compute waits for them.
using LaneSeconds = std::array<double, kLanes>;

LaneSeconds modelled_lanes(const RankTime& rank) {
  LaneSeconds out{};
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = in_background(static_cast<Lane>(i)) ? rank.lanes[i].exposed_s : rank.lanes[i].busy_s;
  return out;
}

LaneSeconds measured_lanes(std::span<const ActionTime> times, int64_t steps) {
  LaneSeconds out{};
  for (const ActionTime& time : times) out[static_cast<size_t>(time.lane)] += time.seconds / static_cast<double>(steps);
  return out;
}

}  // namespace

std::string missed_prediction(const Compiled& compiled, std::span<const ActionTime> times, int64_t steps,
                              double steps_s) {
  if (!compiled.rates.machine || steps < 1 || !moves_between_tiers(compiled.crews[0].plan)) return "";
  std::vector<std::vector<double>> seconds;
  for (const ExecutionPlan* plan : compiled.plans()) seconds.push_back(action_seconds(*plan, compiled.rates));
  const VirtualTime time = virtual_time(compiled.plans(), {.seconds = std::move(seconds)});
  const double step_s = steps_s / static_cast<double>(steps);
  if (step_s <= kMissed * time.makespan_s) return "";
  const LaneSeconds wanted = modelled_lanes(time.ranks[0]), got = measured_lanes(times, steps);
  size_t late = 0;
  for (size_t i = 1; i < got.size(); ++i) {
    if (got[i] - wanted[i] > got[late] - wanted[late]) late = i;
  }
  const Lane lane = static_cast<Lane>(late);
  return fmt::format(
      "a step takes {:.4g} s, {:.0f} % more than the {:.4g} s that its plan predicts; the lane '{}' is late: "
      "{} {:.4g} s instead of {:.4g} s",
      step_s, 100 * (step_s / time.makespan_s - 1), time.makespan_s, to_string(lane),
      in_background(lane) ? "it is waited for" : "it works for", got[late], wanted[late]);
}

}  // namespace trireme
