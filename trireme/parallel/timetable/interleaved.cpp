#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"

namespace trireme::schedule {
namespace {

Timetable make_interleaved(const ScheduleRequest& request, bool delayed) {
  const int crews = request.crews;
  const int per_crew = request.stages_per_crew;
  require(request.micro_batches % crews == 0,
          "schedule '{}': {} micro-batches do not go in groups of {}, the number of crews; give a multiple "
          "(--micro-batches)",
          delayed ? "interleaved-delayed" : "interleaved", request.micro_batches, crews);
  const int units = request.micro_batches * per_crew;
  Timetable out{.stages = crews * per_crew, .micro_batches = request.micro_batches};
  for (int crew = 0; crew < crews; ++crew) {
    std::vector<Unit>& order = out.crews.emplace_back();
    // Micro-batches go through a crew's stages in groups of as many as there are crews.
    const auto unit = [&](Unit::Pass pass, int number) {
      const int group = number / (crews * per_crew);
      const int turn = number % (crews * per_crew) / crews;
      const int stage = pass == Unit::Pass::kForward ? turn : per_crew - 1 - turn;
      return Unit{pass, stage * crews + crew, group * crews + number % crews};
    };
    const int last = delayed ? crews - crew : 2 * (crews - crew - 1) + 1;
    const int ahead = std::min(units, (per_crew - 1) * crews + last);
    int forward = 0;
    while (forward < ahead) order.push_back(unit(Unit::Pass::kForward, forward++));
    for (int backward = 0; backward < units; ++backward) {
      order.push_back(unit(Unit::Pass::kBackward, backward));
      if (forward < units) order.push_back(unit(Unit::Pass::kForward, forward++));
    }
  }
  return out;
}

}  // namespace

Timetable interleaved(const ScheduleRequest& request) {
  return make_interleaved(request, false);
}

Timetable interleaved_delayed(const ScheduleRequest& request) {
  return make_interleaved(request, true);
}

}  // namespace trireme::schedule
