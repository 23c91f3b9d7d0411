#include "trireme/parallel/timetable/schedules.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::array kSchedules{
    PipelineSchedule{"gpipe", "all forward passes, then all backward passes", 1, false, schedule::gpipe},
    PipelineSchedule{"1f1b", "one forward, one backward: crew s of S keeps at most S - s micro-batches", 1, false,
                     schedule::one_forward_one_backward},
    PipelineSchedule{"seq-1f1b", "1f1b over chunks of each micro-batch's positions", 1, true,
                     schedule::one_forward_one_backward},
    PipelineSchedule{"interleaved", "1f1b with several stages a crew: a shorter bubble, more messages", 0, false,
                     schedule::interleaved},
    PipelineSchedule{"interleaved-delayed", "the same, forward passes as late as they can be: fewer activations", 0,
                     false, schedule::interleaved_delayed},
    PipelineSchedule{"zb-h1", "1f1b, weight gradients in its bubbles: a third of the bubble, the same memory", 1, false,
                     schedule::zero_bubble_h1},
    PipelineSchedule{"zb-h2", "no bubble where all passes take the same, twice the memory", 1, false,
                     schedule::zero_bubble_h2},
    PipelineSchedule{"zb-v", "two stages a crew in a V: no bubble where all passes take the same, the memory of 1f1b",
                     2, false, schedule::zero_bubble_v},
    PipelineSchedule{"v-half", "two stages a crew in a V: half the memory of 1f1b, and a bit", 2, false,
                     schedule::v_half},
    PipelineSchedule{"v-min", "two stages a crew in a V: a third of the memory of 1f1b, and a bit", 2, false,
                     schedule::v_min},
    PipelineSchedule{"dualpipe-v", "two stages a crew in a V, forward passes beside backward passes", 2, false,
                     schedule::dual_pipe_v},
};

bool takes(const PipelineSchedule& schedule, int stages_per_crew) {
  return schedule.stages_per_crew == stages_per_crew || (schedule.stages_per_crew == 0 && stages_per_crew > 1);
}

std::string of_whole_positions(int stages_per_crew) {
  std::vector<std::string> names;
  for (const PipelineSchedule& schedule : kSchedules) {
    if (takes(schedule, stages_per_crew) && !schedule.cuts_positions) names.emplace_back(schedule.name);
  }
  return quoted_list(names);
}

}  // namespace

std::span<const PipelineSchedule> schedules() {
  return kSchedules;
}

const PipelineSchedule& find_schedule(std::string_view name) {
  const auto found = std::ranges::find(kSchedules, name, &PipelineSchedule::name);
  if (found != kSchedules.end()) return *found;
  std::string names;
  for (const PipelineSchedule& schedule : kSchedules)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", schedule.name);
  fail(ErrorKind::kNotFound, "there is no schedule '{}'; there are {}", name, names);
}

Timetable unchecked_timetable(const PipelineSchedule& schedule, ScheduleRequest request) {
  if (request.stages_per_crew == 0)
    request.stages_per_crew = std::max(1, schedule.stages_per_crew == 0 ? 2 : schedule.stages_per_crew);
  if (request.seq_chunks == 0) request.seq_chunks = schedule.cuts_positions ? 2 : 1;
  const auto& [crews, per_crew, micro_batches, seq_chunks] = request;
  require(crews >= 1 && micro_batches >= 1, "schedule '{}': {} crews and {} micro-batches; both must be 1 or more",
          schedule.name, crews, micro_batches);
  require(micro_batches >= crews,
          "schedule '{}': with {} micro-batch{} for {} crews the pipeline would never be full; give at least {} "
          "(--micro-batches)",
          schedule.name, micro_batches, micro_batches == 1 ? "" : "es", crews, crews);
  require(static_cast<double>(crews) * std::max(per_crew, 1) * micro_batches * seq_chunks <=
              static_cast<double>(kMostUnits),
          "schedule '{}': {} crews x {} stages x {} micro-batches x {} chunks are more than {} units; take fewer",
          schedule.name, crews, per_crew, micro_batches, seq_chunks, kMostUnits);
  require(takes(schedule, per_crew), "schedule '{}': {} a crew (--virtual-stages); it takes {}; use that, or {}",
          schedule.name, counted(per_crew, "stage"),
          schedule.stages_per_crew == 0 ? "2 or more" : std::to_string(schedule.stages_per_crew),
          of_whole_positions(per_crew));
  require(seq_chunks == 1 || (schedule.cuts_positions && seq_chunks > 1),
          "schedule '{}': {} chunks of positions (--seq-chunks); {}", schedule.name, seq_chunks,
          schedule.cuts_positions ? "it takes 1 or more" : "only seq-1f1b cuts them");
  Timetable out = schedule.make(request);
  out.name = schedule.name;
  return out;
}

Timetable make_timetable(const PipelineSchedule& schedule, ScheduleRequest request) {
  Timetable out = unchecked_timetable(schedule, request);
  check(out);
  return out;
}

Timetable make_timetable(std::string_view name, ScheduleRequest request) {
  return make_timetable(find_schedule(name), request);
}

ScheduleSpec::ScheduleSpec(Timetable timetable) : given_(std::move(timetable)), text_(to_string(*given_)) {
  check(*given_);
}

ScheduleSpec ScheduleSpec::read(std::string_view text) {
  ScheduleSpec out;
  if (text.starts_with("timetable ")) {
    out = ScheduleSpec(parse_timetable(text));
  } else {
    out.schedule_ = &find_schedule(text);
  }
  out.text_ = text;
  return out;
}

std::string of_whole_positions(const ScheduleSpec& instead_of) {
  const Timetable* given = instead_of.given();
  const int per_crew =
      given ? given->stages / static_cast<int>(given->crews.size()) : instead_of.schedule().stages_per_crew;
  return of_whole_positions(per_crew);
}

}  // namespace trireme
