#include "trireme/train/report/late_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/base/counted.h"
#include "trireme/exec/analysis/virtual_time.h"

namespace trireme {
namespace {

constexpr double kMissed = 1.15;
constexpr double kWorthSayingS = 0.01;  // a step, where rates alone are known: what moves begin with is not

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

// By crew and action. Where nobody names a machine, what ran by itself takes as long as it did, and only what moves
// between tiers goes by rates.
std::vector<std::vector<double>> modelled_seconds(const Compiled& compiled, std::span<const ActionTime> times,
                                                  int64_t steps, std::optional<double> disk_bytes_per_s) {
  Rates rates = compiled.rates;
  const bool is_measured = !rates.machine.has_value();
  if (is_measured) rates.machine = Machine::this_host();
  if (is_measured && disk_bytes_per_s) rates.machine->disk_bytes_per_s = *disk_bytes_per_s;
  std::vector<std::vector<double>> out;
  for (const ExecutionPlan* plan : compiled.plans()) out.push_back(action_seconds(*plan, rates));
  for (size_t i = 0; is_measured && i < times.size(); ++i) {
    if (!in_background(times[i].lane)) out[0][i] = times[i].seconds / static_cast<double>(steps);
  }
  return out;
}

// "; 4 threads of 2 ranks share the 2 cores of this host", where there are more than cores; a lane of ops on the host
// has as many again.
std::string said_of_cores(const ExecutionPlan& plan, const MeasuredSteps& steps) {
  const bool has_host_ops = std::ranges::count(plan.actions, Lane::kHost, &Action::lane) > 0;
  const int64_t threads = steps.ranks_here * steps.threads * (has_host_ops ? 2 : 1);
  const int64_t cores = Machine::this_host().devices();
  if (threads <= cores) return "";
  return fmt::format("; {} of {} share the {} of this host", counted(threads, "thread"),
                     counted(steps.ranks_here, "rank"), counted(cores, "core"));
}

// "20 % more than the 2 s", from twice as long on "3 times the 2 s".
std::string compared(double step_s, double modelled_s) {
  const double times = step_s / modelled_s;
  if (times < 2) return fmt::format("{:.0f} % more than the {:.4g} s", 100 * (times - 1), modelled_s);
  return fmt::format("{:.{}f} times the {:.4g} s", times, times < 10 ? 1 : 0, modelled_s);
}

}  // namespace

std::string missed_prediction(const Compiled& compiled, const MeasuredSteps& steps) {
  const ExecutionPlan& plan = compiled.crews[0].plan;
  const bool is_named = compiled.rates.machine.has_value();
  const bool is_known = is_named || (compiled.crews.size() == 1 && steps.times.size() == plan.actions.size());
  if (!is_known || steps.count < 1 || !moves_between_tiers(plan)) return "";
  const VirtualTime time = virtual_time(
      compiled.plans(), {.seconds = modelled_seconds(compiled, steps.times, steps.count, steps.disk_bytes_per_s),
                         .overlap_slowdown = compiled.rates.overlap_slowdown()});
  const double step_s = steps.seconds / static_cast<double>(steps.count);
  if (step_s <= kMissed * time.makespan_s || (!is_named && step_s < time.makespan_s + kWorthSayingS)) return "";
  const LaneSeconds wanted = modelled_lanes(time.ranks[0]), got = measured_lanes(steps.times, steps.count);
  size_t late = is_named ? 0 : 1;  // of the lanes besides compute
  for (size_t i = late + 1; i < got.size(); ++i) {
    if (got[i] - wanted[i] > got[late] - wanted[late]) late = i;
  }
  const Lane lane = static_cast<Lane>(late);
  return fmt::format(
      "a step takes {:.4g} s, {} that its plan predicts{}; the lane '{}' is late: {} {:.4g} s instead of {:.4g} s{}",
      step_s, compared(step_s, time.makespan_s), is_named ? "" : ", with the time that computing took", to_string(lane),
      in_background(lane) ? "it is waited for" : "it works for", got[late], wanted[late], said_of_cores(plan, steps));
}

}  // namespace trireme
