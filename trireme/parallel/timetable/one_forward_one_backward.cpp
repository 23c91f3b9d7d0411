#include <algorithm>

#include "trireme/parallel/timetable/schedules.h"

namespace trireme::schedule {

Timetable one_forward_one_backward(const ScheduleRequest& request) {
  const int chunks = request.seq_chunks;
  const int units = request.micro_batches * chunks;
  Timetable out{.stages = request.crews, .micro_batches = request.micro_batches, .seq_chunks = chunks};
  for (int stage = 0; stage < request.crews; ++stage) {
    std::vector<Unit>& crew = out.crews.emplace_back();
    int forward = 0;
    const auto add_forward = [&] {
      crew.push_back({Unit::Pass::kForward, stage, forward / chunks, forward % chunks});
      ++forward;
    };
    // A micro-batch's first backward pass is that of its last chunk.
    const int ahead = std::min(units, request.crews - stage + chunks - 1);
    while (forward < ahead) add_forward();
    for (int backward = 0; backward < units; ++backward) {
      crew.push_back({Unit::Pass::kBackward, stage, backward / chunks, chunks - 1 - backward % chunks});
      if (forward < units) add_forward();
    }
  }
  return out;
}

}  // namespace trireme::schedule
