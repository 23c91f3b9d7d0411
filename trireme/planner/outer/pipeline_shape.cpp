#include "trireme/planner/outer/pipeline_shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"

namespace trireme {
namespace {

// Where they are equal, which pass a crew waits for is a matter of taste.
const UnitCosts kAlike{.forward = 100, .input_grad = 104, .weight_grad = 96};

// What a step takes beside the passes of all micro-batches, by each of these costs: time_of
// (parallel/timetable/timetable_time.h) for all at once, of a timetable of a schedule. So what a unit needs of its own
// crew stands before it, and it waits for one of another stage at most.
template <size_t n>
class IdleBy {
 public:
  IdleBy(const Timetable& timetable, const std::array<UnitCosts, n>& costs)
      : timetable_(timetable),
        costs_(costs),
        crew_of_(crews_of_stages(timetable)),
        micro_batches_(static_cast<size_t>(timetable.micro_batches)),
        forward_(crew_of_.size() * micro_batches_),
        gradient_(forward_.size()) {}

  std::array<int64_t, n> operator()() {
    const size_t crews = timetable_.crews.size();
    std::vector<size_t> next(crews, 0);
    std::vector<Times> ends(crews, Times{});
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t crew = 0; crew < crews; ++crew) {
        const std::vector<Unit>& units = timetable_.crews[crew];
        for (; next[crew] < units.size() && run(units[next[crew]], static_cast<int>(crew), ends[crew]); moved = true)
          ++next[crew];
      }
    }
    for (size_t crew = 0; crew < crews; ++crew) {
      if (next[crew] < timetable_.crews[crew].size())
        fail(ErrorKind::kInternal, "crew {} of the timetable '{}' waits for ever", crew, timetable_.name);
    }
    std::array<int64_t, n> out{};
    const auto passes = static_cast<int64_t>(forward_.size() / crews);  // of a crew
    for (size_t i = 0; i < n; ++i) {
      double makespan = 0;
      for (const Times& end : ends) makespan = std::max(makespan, end[i]);
      const double each = costs_[i].forward + costs_[i].input_grad + costs_[i].weight_grad;
      out[i] = std::llround(makespan - each * static_cast<double>(passes));
    }
    return out;
  }

 private:
  using Times = std::array<double, n>;
  struct Done {
    Times at{};
    bool is_done = false;
  };
  Done& of(std::vector<Done>& all, int stage, int micro_batch) {
    return all[static_cast<size_t>(stage) * micro_batches_ + static_cast<size_t>(micro_batch)];
  }

  // Whether it could run; `at`: the end of the crew's unit before it, then its own.
  bool run(const Unit& unit, int crew, Times& at) {
    const bool is_forward = unit.pass == Unit::Pass::kForward;
    const int from = is_forward ? unit.stage - 1 : unit.stage + 1;
    const bool waits = unit.pass != Unit::Pass::kWeightGrad && from >= 0 && from < timetable_.stages;
    if (waits) {
      const Done& needed = of(is_forward ? forward_ : gradient_, from, unit.micro_batch);
      if (!needed.is_done) return false;
      const bool is_own = crew_of_[static_cast<size_t>(from)] == crew;
      for (size_t i = 0; i < n; ++i) at[i] = std::max(at[i], needed.at[i] + (is_own ? 0 : costs_[i].transfer));
    }
    for (size_t i = 0; i < n; ++i) at[i] += cost_of(unit, costs_[i]);
    if (unit.pass != Unit::Pass::kWeightGrad)
      of(is_forward ? forward_ : gradient_, unit.stage, unit.micro_batch) = {at, true};
    return true;
  }

  const Timetable& timetable_;
  const std::array<UnitCosts, n>& costs_;
  std::vector<int> crew_of_;
  size_t micro_batches_;
  std::vector<Done> forward_, gradient_;
};

template <size_t n>
std::array<int64_t, n> idle_by(const Timetable& timetable, const std::array<UnitCosts, n>& costs) {
  return IdleBy<n>(timetable, costs)();
}

UnitCosts with_one_more(double UnitCosts::*cost) {
  UnitCosts out = kAlike;
  out.*cost += 1;
  return out;
}

using HeldSpan = std::span<const HeldMicroBatches>;  // of each of a crew's stages

bool holds_no_more(HeldSpan a, HeldSpan b) {
  for (size_t chunk = 0; chunk < a.size(); ++chunk) {
    if (a[chunk].whole > b[chunk].whole || a[chunk].waiting > b[chunk].waiting) return false;
  }
  return true;
}

// What a crew holds after each of its forward passes, and after each other pass where weight gradients wait. Of moments
// that follow each other by the same change the ends are enough: whatever stages keep, one of them has as much.
class CrewMoments {
 public:
  CrewMoments(const std::vector<Unit>& crew, int crews, size_t chunks) : chunks_(chunks), change_(chunks) {
    std::vector<HeldMicroBatches> now(chunks);
    for (const Unit& unit : crew) {
      HeldMicroBatches& of_stage = now[static_cast<size_t>(unit.stage / crews)];
      of_stage.whole += unit.pass == Unit::Pass::kForward ? 1 : unit.pass == Unit::Pass::kWeightGrad ? 0 : -1;
      of_stage.waiting += unit.pass == Unit::Pass::kInputGrad ? 1 : unit.pass == Unit::Pass::kWeightGrad ? -1 : 0;
      if (unit.pass != Unit::Pass::kBackward) add(now);
    }
  }

  size_t size() const { return all_.size() / chunks_; }
  HeldSpan operator[](size_t at) const { return HeldSpan(all_).subspan(at * chunks_, chunks_); }

 private:
  void add(HeldSpan now) {
    bool is_same_change = size() >= 2;
    if (!all_.empty()) {
      const HeldSpan last = (*this)[size() - 1];
      for (size_t chunk = 0; chunk < chunks_; ++chunk) {
        const HeldMicroBatches step{now[chunk].whole - last[chunk].whole, now[chunk].waiting - last[chunk].waiting};
        is_same_change = is_same_change && step == change_[chunk];
        change_[chunk] = step;
      }
    }
    if (is_same_change) all_.resize(all_.size() - chunks_);
    all_.insert(all_.end(), now.begin(), now.end());
  }

  size_t chunks_;
  std::vector<HeldMicroBatches> all_, change_;  // of the last two
};

// The fullest moments, with most whole ones of the first stage first.
std::vector<HeldMoment> held_by(const std::vector<Unit>& crew, int crews, size_t chunks) {
  const CrewMoments all(crew, crews, chunks);
  std::vector<size_t> fullest;
  for (size_t each = 0; each < all.size(); ++each) {  // most hold no more than one of the few before them
    if (std::ranges::any_of(fullest, [&](size_t other) { return holds_no_more(all[each], all[other]); })) continue;
    std::erase_if(fullest, [&](size_t other) { return holds_no_more(all[other], all[each]); });
    fullest.push_back(each);
  }
  std::ranges::sort(fullest, [&](size_t a, size_t b) { return std::ranges::lexicographical_compare(all[b], all[a]); });
  std::vector<HeldMoment> out;
  for (const size_t each : fullest) out.emplace_back(all[each].begin(), all[each].end());
  return out;
}

std::vector<std::vector<HeldMoment>> held_by_crews(const Timetable& timetable) {
  const auto crews = static_cast<int>(timetable.crews.size());
  std::vector<std::vector<HeldMoment>> out;
  for (const std::vector<Unit>& crew : timetable.crews)
    out.push_back(held_by(crew, crews, static_cast<size_t>(timetable.stages / crews)));
  return out;
}

// Forward passes before each crew's first backward pass.
std::vector<int64_t> ahead_of(const Timetable& timetable) {
  std::vector<int64_t> out;
  for (const std::vector<Unit>& crew : timetable.crews) {
    const auto is_backward = [](const Unit& unit) { return unit.pass != Unit::Pass::kForward; };
    out.push_back(std::ranges::find_if(crew, is_backward) - crew.begin());
  }
  return out;
}

// What interleaved_time reckons with: that crews run so far ahead, and then one pass of each kind in turn, through
// their stages by as many micro-batches as there are crews; and each crew one or two passes farther ahead than the
// next.
void require_in_turn(const Timetable& timetable, const std::vector<int64_t>& ahead) {
  const auto crews = static_cast<int>(timetable.crews.size());
  const int chunks = timetable.stages / crews, passes = timetable.micro_batches * chunks;
  const auto unit = [&](Unit::Pass pass, int number, int crew) {
    const int turn = number / crews % chunks, chunk = pass == Unit::Pass::kForward ? turn : chunks - 1 - turn;
    return Unit{pass, chunk * crews + crew, number / (crews * chunks) * crews + number % crews};
  };
  bool is_in_turn = ahead.back() > int64_t{chunks - 1} * crews;
  for (int crew = 0; crew < crews; ++crew) {
    const auto own = static_cast<size_t>(crew);
    const int64_t more = crew + 1 < crews ? ahead[own] - ahead[own + 1] : 1;
    std::vector<Unit> units;
    int forward = 0;
    const auto run_forward = [&] {
      if (forward < passes) units.push_back(unit(Unit::Pass::kForward, forward++, crew));
    };
    while (forward < passes && forward < ahead[own]) run_forward();
    for (int backward = 0; backward < passes; ++backward) {
      units.push_back(unit(Unit::Pass::kBackward, backward, crew));
      run_forward();
    }
    is_in_turn = is_in_turn && (more == 1 || more == 2) && units == timetable.crews[own];
  }
  if (!is_in_turn)
    fail(ErrorKind::kUnsupported, "crews of the schedule '{}' do not go through their stages in turn", timetable.name);
}

}  // namespace

PipelineShape shape_of_schedule(const PipelineSchedule& schedule, int64_t crews, int64_t chunks) {
  if (crews == 1) {
    PipelineShape out;
    out.held.push_back({HeldMoment{HeldMicroBatches{.whole = 1}}});
    return out;
  }
  const auto timetable = [&](int64_t micro_batches) {
    return unchecked_timetable(schedule, {.crews = static_cast<int>(crews),
                                          .stages_per_crew = static_cast<int>(chunks),
                                          .micro_batches = static_cast<int>(micro_batches),
                                          .seq_chunks = 1});
  };
  const int64_t fewest = (chunks > 1 ? 3 : 2) * crews;
  const Timetable few = timetable(fewest), longer = timetable(fewest + crews);
  PipelineShape out{.held = held_by_crews(few), .chunks = chunks};
  if (out.held != held_by_crews(longer)) {
    fail(ErrorKind::kUnsupported, "the schedule '{}' keeps more activations the more micro-batches there are",
         schedule.name);
  }
  if (chunks > 1) {
    out.ahead = ahead_of(longer);
    require_in_turn(few, out.ahead);
    require_in_turn(longer, out.ahead);
    return out;
  }
  const auto [idle, forward, input, weight, transfer] =
      idle_by(few, std::array{kAlike, with_one_more(&UnitCosts::forward), with_one_more(&UnitCosts::input_grad),
                              with_one_more(&UnitCosts::weight_grad), with_one_more(&UnitCosts::transfer)});
  const auto [more, more_transfer] = idle_by(longer, std::array{kAlike, with_one_more(&UnitCosts::transfer)});
  if (idle != more) {
    fail(ErrorKind::kUnsupported,
         "the schedule '{}' idles {} for {} micro-batches and {} for {}: its idle time grows with them", schedule.name,
         idle, fewest, more, fewest + crews);
  }
  out.idle_forward = forward - idle;
  out.idle_input = input - idle;
  out.idle_weight = weight - idle;
  out.waits_for_slowest = std::min(out.idle_forward, out.idle_input) == crews - 1 && out.idle_weight == crews - 1;
  out.more_transfers = more_transfer - more - (transfer - idle);
  out.transfers = transfer - idle - fewest / crews * out.more_transfers;
  return out;
}

}  // namespace trireme
