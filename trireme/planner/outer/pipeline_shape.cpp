#include "trireme/planner/outer/pipeline_shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"

namespace trireme {
namespace {

// Where they are equal, which pass a crew waits for is a matter of taste.
const UnitCosts kAlike{.forward = 100, .input_grad = 104, .weight_grad = 96};

// What a step takes beside the passes of all micro-batches, by each of these costs: time_of
// (parallel/timetable/timetable_time.h) for all at once, of a timetable that was checked.
template <size_t n>
std::array<int64_t, n> idle_by(const Timetable& timetable, const std::array<UnitCosts, n>& costs) {
  using Times = std::array<double, n>;
  const UnitIndex index(timetable);
  const size_t crews = timetable.crews.size();
  std::vector<std::vector<Times>> ends(crews);
  std::vector<Unit> needs;
  const auto start = [&](size_t crew, Times& at) {
    index.needs_of(timetable.crews[crew][ends[crew].size()], needs);
    for (const Unit& need : needs) {
      const UnitIndex::Place place = index.place_of(need);
      const auto other = static_cast<size_t>(place.crew);
      if (static_cast<size_t>(place.at) >= ends[other].size()) return false;
      const Times& ready = ends[other][static_cast<size_t>(place.at)];
      for (size_t i = 0; i < n; ++i) at[i] = std::max(at[i], ready[i] + (other == crew ? 0 : costs[i].transfer));
    }
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t crew = 0; crew < crews; ++crew) {
      while (ends[crew].size() < timetable.crews[crew].size()) {
        Times at = ends[crew].empty() ? Times{} : ends[crew].back();
        if (!start(crew, at)) break;
        for (size_t i = 0; i < n; ++i) at[i] += cost_of(timetable.crews[crew][ends[crew].size()], costs[i]);
        ends[crew].push_back(at);
        moved = true;
      }
    }
  }
  std::array<int64_t, n> out{};
  for (size_t i = 0; i < n; ++i) {
    double makespan = 0;
    for (const std::vector<Times>& crew : ends) makespan = std::max(makespan, crew.back()[i]);
    const double passes = costs[i].forward + costs[i].input_grad + costs[i].weight_grad;
    const auto chunks = timetable.stages / static_cast<int>(crews);
    out[i] = std::llround(makespan - passes * timetable.micro_batches * chunks);
  }
  return out;
}

UnitCosts with_one_more(double UnitCosts::*cost) {
  UnitCosts out = kAlike;
  out.*cost += 1;
  return out;
}

bool holds_no_more(const HeldMoment& a, const HeldMoment& b) {
  for (size_t chunk = 0; chunk < a.size(); ++chunk) {
    if (a[chunk].whole > b[chunk].whole || a[chunk].waiting > b[chunk].waiting) return false;
  }
  return true;
}

void set_change(const HeldMoment& from, const HeldMoment& to, HeldMoment& change) {
  change.resize(from.size());
  for (size_t chunk = 0; chunk < from.size(); ++chunk)
    change[chunk] = {to[chunk].whole - from[chunk].whole, to[chunk].waiting - from[chunk].waiting};
}

// What a crew holds after each of its forward passes, and after each other pass where weight gradients wait. Of moments
// that follow each other by the same change the ends are enough: whatever stages keep, one of them has as much.
std::vector<HeldMoment> moments_of(const std::vector<Unit>& crew, int crews, size_t chunks) {
  std::vector<HeldMoment> out;
  HeldMoment now(chunks), change, step;
  for (const Unit& unit : crew) {
    HeldMicroBatches& of_stage = now[static_cast<size_t>(unit.stage / crews)];
    of_stage.whole += unit.pass == Unit::Pass::kForward ? 1 : unit.pass == Unit::Pass::kWeightGrad ? 0 : -1;
    of_stage.waiting += unit.pass == Unit::Pass::kInputGrad ? 1 : unit.pass == Unit::Pass::kWeightGrad ? -1 : 0;
    if (unit.pass == Unit::Pass::kBackward) continue;
    if (!out.empty()) set_change(out.back(), now, step);
    if (out.size() >= 2 && step == change) {
      out.back() = now;
    } else {
      change.swap(step);
      out.push_back(now);
    }
  }
  return out;
}

// The fullest moments, with most whole ones of the first stage first.
std::vector<HeldMoment> held_by(const std::vector<Unit>& crew, int crews, size_t chunks) {
  std::vector<HeldMoment> all = moments_of(crew, crews, chunks);
  std::ranges::sort(all, std::greater<>());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<HeldMoment> out;
  for (const HeldMoment& each : all) {
    const bool is_held = std::ranges::any_of(
        all, [&](const HeldMoment& other) { return &other != &each && holds_no_more(each, other); });
    if (!is_held) out.push_back(each);
  }
  return out;
}

std::vector<std::vector<HeldMoment>> held_by_crews(const Timetable& timetable) {
  const auto crews = static_cast<int>(timetable.crews.size());
  std::vector<std::vector<HeldMoment>> out;
  for (const std::vector<Unit>& crew : timetable.crews)
    out.push_back(held_by(crew, crews, static_cast<size_t>(timetable.stages / crews)));
  return out;
}

}  // namespace

PipelineShape shape_of_schedule(std::string_view schedule, int64_t crews, int64_t chunks) {
  if (crews == 1) {
    PipelineShape out;
    out.held.push_back({HeldMoment{HeldMicroBatches{.whole = 1}}});
    return out;
  }
  const auto timetable = [&](int64_t micro_batches) {
    return make_timetable(schedule, {.crews = static_cast<int>(crews),
                                     .stages_per_crew = static_cast<int>(chunks),
                                     .micro_batches = static_cast<int>(micro_batches),
                                     .seq_chunks = 1});
  };
  const int64_t fewest = (chunks > 1 ? 3 : 2) * crews;
  const Timetable few = timetable(fewest), longer = timetable(fewest + crews);
  const auto [idle, forward, input, weight, transfer] =
      idle_by(few, std::array{kAlike, with_one_more(&UnitCosts::forward), with_one_more(&UnitCosts::input_grad),
                              with_one_more(&UnitCosts::weight_grad), with_one_more(&UnitCosts::transfer)});
  const auto [more, more_transfer] = idle_by(longer, std::array{kAlike, with_one_more(&UnitCosts::transfer)});
  PipelineShape out{.held = held_by_crews(few), .chunks = chunks};
  if (out.held != held_by_crews(longer)) {
    fail(ErrorKind::kUnsupported, "the schedule '{}' keeps more the more micro-batches there are", schedule);
  }
  if (idle != more) {
    fail(ErrorKind::kUnsupported,
         "the schedule '{}' idles {} for {} micro-batches and {} for {}: its idle time grows with them", schedule, idle,
         fewest, more, fewest + crews);
  }
  out.idle_forward = forward - idle;
  out.idle_input = input - idle;
  out.idle_weight = weight - idle;
  out.more_transfers = more_transfer - more - (transfer - idle);
  out.transfers = transfer - idle - fewest / crews * out.more_transfers;
  return out;
}

}  // namespace trireme
