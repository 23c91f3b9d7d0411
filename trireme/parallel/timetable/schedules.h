// The schedules that make timetables, by name. To add one: a file beside gpipe.cpp, and its line in schedules.cpp.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/words.h"
#include "trireme/parallel/timetable/timetable.h"

namespace trireme {

struct ScheduleRequest {
  int crews = 1;
  int stages_per_crew = 1;  // virtual stages
  int micro_batches = 1;
  int seq_chunks = 1;
};

struct PipelineSchedule {
  std::string_view name;     // "1f1b"
  std::string_view meaning;  // a line for help
  int stages_per_crew;       // that it is for; 0: any from 2 on
  bool cuts_positions;       // takes seq_chunks
  Timetable (*make)(const ScheduleRequest& request);
};

std::span<const PipelineSchedule> schedules();

// Throws kNotFound for a name that is none.
const PipelineSchedule& find_schedule(std::string_view name);

// Throws kInvalidArgument where the schedule cannot have so many crews, stages
// or micro-batches, with what it can have: fewer micro-batches than crews (a pipeline that never fills) are refused by
// all. `stages_per_crew` and `seq_chunks` of 0 stand for the least that the schedule takes.
Timetable make_timetable(const PipelineSchedule& schedule, ScheduleRequest request);
Timetable make_timetable(std::string_view name, ScheduleRequest request);  // throws as find_schedule does, too
// The same without a check (timetable.h) of what the schedule made, for who runs it and sees whether it ends.
Timetable unchecked_timetable(const PipelineSchedule& schedule, ScheduleRequest request);

// The order of work that a user asks for: one of the schedules, by its name, or a timetable, by its text.
class ScheduleSpec {
 public:
  template <Text T>
  ScheduleSpec(const T& written)
      : ScheduleSpec(read(written)) {}         // NOLINT: throws as find_schedule, parse_timetable, check
  explicit ScheduleSpec(Timetable timetable);  // throws as check does

  const PipelineSchedule& schedule() const { return *schedule_; }  // where no timetable is given
  const Timetable* given() const { return given_ ? &*given_ : nullptr; }
  const std::string& text() const { return text_; }

  friend bool operator==(const ScheduleSpec& a, const ScheduleSpec& b) { return a.text_ == b.text_; }

 private:
  ScheduleSpec() = default;
  static ScheduleSpec read(std::string_view text);

  const PipelineSchedule* schedule_ = nullptr;
  std::optional<Timetable> given_;
  std::string text_;
};

// The schedules that leave positions whole, for as many stages a crew: "'gpipe', '1f1b', 'zb-h1' or 'zb-h2'".
std::string of_whole_positions(const ScheduleSpec& instead_of);

namespace schedule {

// Huang et al. 2019: all forward passes, then all backward passes, here in the order of the forward passes, so that
// gradients are summed in one order under every schedule. A crew keeps every micro-batch.
Timetable gpipe(const ScheduleRequest& request);
// Narayanan et al. 2019 (PipeDream-Flush): crew s keeps at most S - s micro-batches. With chunks of positions (Sun et
// al. 2024, Seq1F1B): the same over chunks, backward passes from a micro-batch's last chunk to its first.
Timetable one_forward_one_backward(const ScheduleRequest& request);
// Narayanan et al. 2021: stage c S + s belongs to crew s; S micro-batches at a time go through a crew's first stage,
// then its second. `delayed`: forward passes start as late as the same makespan allows (MindSpore's order), so fewer
// are kept.
Timetable interleaved(const ScheduleRequest& request);
Timetable interleaved_delayed(const ScheduleRequest& request);
// Qi et al. 2023: 1F1B with the backward pass in two parts. H1 keeps S micro-batches, bubble (S-1)(F+I-W); H2 keeps 2S
// - 1, bubble (S-1)(F+I-2W): none where all take the same.
Timetable zero_bubble_h1(const ScheduleRequest& request);
Timetable zero_bubble_h2(const ScheduleRequest& request);
// Qi et al. 2024, "Pipeline parallelism with controllable memory": stages s and 2S-1-s belong to crew s. ZB-V has no
// bubble and keeps what 1F1B keeps; V-Half keeps half of that and V-Min a third, with a bubble of at most 3 S and 4 S
// passes of one stage.
Timetable zero_bubble_v(const ScheduleRequest& request);
Timetable v_half(const ScheduleRequest& request);
Timetable v_min(const ScheduleRequest& request);
// DeepSeek-AI 2025, DualPipe cut in half: the stages of a V, forward passes of one side beside backward passes of the
// other.
Timetable dual_pipe_v(const ScheduleRequest& request);

// Puts weight gradients into orders that have none: where a crew would idle, and as soon as it keeps `most_live` units
// and has to let go of one before the next forward pass. All passes take the same time.
void fill_with_weight_grads(Timetable& timetable, int most_live);

}  // namespace schedule
}  // namespace trireme
