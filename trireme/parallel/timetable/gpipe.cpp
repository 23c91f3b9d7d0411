#include "trireme/parallel/timetable/schedules.h"

namespace trireme::schedule {

Timetable gpipe(const ScheduleRequest& request) {
  Timetable out{.stages = request.crews, .micro_batches = request.micro_batches};
  for (int stage = 0; stage < request.crews; ++stage) {
    std::vector<Unit>& crew = out.crews.emplace_back();
    for (int i = 0; i < request.micro_batches; ++i) crew.push_back({Unit::Pass::kForward, stage, i});
    for (int i = 0; i < request.micro_batches; ++i) crew.push_back({Unit::Pass::kBackward, stage, i});
  }
  return out;
}

}  // namespace trireme::schedule
