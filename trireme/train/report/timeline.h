// The timetable of a pipeline as a step ran it: when each crew computed which pass of which micro-batch, beside the
// same of the modelled step (exec/analysis/virtual_time.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/exec/run/executor.h"
#include "trireme/ir/program.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme {

// Ops of one pass and one micro-batch that a rank computed one after the other.
struct PassSpan {
  Phase phase = Phase::kForward;
  int stage = -1;
  int micro_batch = -1;           // of the timetable; -1: of none
  double begin_s = 0, end_s = 0;  // from when the first rank began
  double computed_s = 0;          // of that the time in which it computed
  friend bool operator==(const PassSpan&, const PassSpan&) = default;
};

// By crew, of its first rank.
struct Timeline {
  std::vector<std::vector<PassSpan>> crews;
  double step_s() const;  // until the last of them ended
  // The share of all crews' time in which they did not compute.
  double bubble() const;
};

// The modelled step of a pipeline.
Timeline modelled_timeline(const Compiled& compiled);

// Notes one step of a pipeline on the first rank of each crew, and brings all of it to rank 0.
class TimelineRecorder {
 public:
  // A null world, or a step that is no pipeline: nothing is noted.
  TimelineRecorder(const Compiled& compiled, Executor& executor, comm::World* world, int64_t step);

  // Before and after each step; collective around the one that is noted. `is_tracing`: somebody else has the executor
  // note its actions.
  void begin(int64_t step, bool is_tracing);
  void end(int64_t step, bool is_tracing);

  // On rank 0, after its step.
  const std::optional<Timeline>& timeline() const { return timeline_; }

 private:
  bool is_on(int64_t step) const { return world_ != nullptr && step == step_; }

  const Compiled& compiled_;
  Executor& executor_;
  comm::World* world_;
  int64_t step_;
  std::chrono::steady_clock::time_point origin_;
  std::optional<Timeline> timeline_;
};

// As text, for the way to rank 0. Throws kInvalidArgument for other text.
std::string to_string(std::span<const PassSpan> spans);
std::vector<PassSpan> parse_spans(std::string_view text);

// A drawing of two timelines on one scale, a row for each crew.
std::string timeline_chart(const Timeline& planned, const Timeline& ran);

}  // namespace trireme
