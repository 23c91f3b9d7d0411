#include "trireme/planner/outer/pipeline_shape.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"

namespace trireme {
namespace {

// Where they are equal, which pass a crew waits for is a matter of taste.
constexpr UnitCosts kAlike{.forward = 100, .input_grad = 104, .weight_grad = 96};

// Beside the passes of all micro-batches.
int64_t idle_of(const Timetable& timetable, const UnitCosts& costs) {
  const double passes = costs.forward + costs.input_grad + costs.weight_grad;
  return std::llround(time_of(timetable, costs).makespan - passes * timetable.micro_batches);
}

// The fullest moments of a crew that works through these units, with most whole ones first.
std::vector<HeldMicroBatches> held_by(const std::vector<Unit>& crew) {
  std::vector<HeldMicroBatches> all;
  HeldMicroBatches now;
  for (const Unit& unit : crew) {
    now.whole += unit.pass == Unit::Pass::kForward ? 1 : unit.pass == Unit::Pass::kWeightGrad ? 0 : -1;
    now.waiting += unit.pass == Unit::Pass::kInputGrad ? 1 : unit.pass == Unit::Pass::kWeightGrad ? -1 : 0;
    all.push_back(now);
  }
  std::ranges::sort(all, std::greater<>());
  std::vector<HeldMicroBatches> out;
  for (const HeldMicroBatches& each : all) {
    if (out.empty() || each.waiting > out.back().waiting) out.push_back(each);
  }
  return out;
}

std::vector<std::vector<HeldMicroBatches>> held_by_crews(const Timetable& timetable) {
  std::vector<std::vector<HeldMicroBatches>> out;
  for (const std::vector<Unit>& crew : timetable.crews) out.push_back(held_by(crew));
  return out;
}

}  // namespace

PipelineShape shape_of_schedule(std::string_view schedule, int64_t crews) {
  if (crews == 1) return {.held = {{{.whole = 1}}}};
  const auto timetable = [&](int64_t micro_batches) {
    return make_timetable(schedule, {.crews = static_cast<int>(crews),
                                     .stages_per_crew = 1,
                                     .micro_batches = static_cast<int>(micro_batches),
                                     .seq_chunks = 1});
  };
  const Timetable few = timetable(2 * crews);
  const int64_t idle = idle_of(few, kAlike);
  const Timetable longer = timetable(3 * crews);
  const int64_t more = idle_of(longer, kAlike);
  if (held_by_crews(few) != held_by_crews(longer)) {
    fail(ErrorKind::kUnsupported, "the schedule '{}' keeps more the more micro-batches there are", schedule);
  }
  if (idle != more) {
    fail(ErrorKind::kUnsupported,
         "the schedule '{}' idles {} for {} micro-batches and {} for {}: its idle time grows with them", schedule, idle,
         2 * crews, more, 3 * crews);
  }
  const auto one_more = [&](double UnitCosts::*cost) {
    UnitCosts costs = kAlike;
    costs.*cost += 1;
    return idle_of(few, costs) - idle;
  };
  PipelineShape out{.idle_forward = one_more(&UnitCosts::forward),
                    .idle_input = one_more(&UnitCosts::input_grad),
                    .idle_weight = one_more(&UnitCosts::weight_grad)};
  out.held = held_by_crews(few);
  return out;
}

}  // namespace trireme
