#include "trireme/planner/way_choices.h"

namespace trireme {

const PipelineSchedule& schedule_of(WaySchedule schedule) {
  static const std::array<const PipelineSchedule*, kWaySchedules.size()> kInOrder{
      &find_schedule("1f1b"), &find_schedule("interleaved"), &find_schedule("interleaved-delayed"),
      &find_schedule("zb-h1"), &find_schedule("zb-h2")};
  return *kInOrder[static_cast<size_t>(schedule)];
}

std::string_view to_string(WaySchedule schedule) {
  return schedule_of(schedule).name;
}

std::string_view to_string(WayRecompute again) {
  constexpr std::array<std::string_view, kWayRecompute.size()> kNames{"full", "none", "selective"};
  return kNames[static_cast<size_t>(again)];
}

}  // namespace trireme
