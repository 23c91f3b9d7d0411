#include <algorithm>

#include "trireme/parallel/timetable/schedules.h"

namespace trireme::schedule {
namespace {

// 1F1B whose crew s runs `ahead(s)` forward passes before its first backward pass.
template <class Ahead>
Timetable one_by_one(const ScheduleRequest& request, Ahead ahead) {
  Timetable out{.stages = request.crews, .micro_batches = request.micro_batches};
  for (int stage = 0; stage < request.crews; ++stage) {
    std::vector<Unit>& crew = out.crews.emplace_back();
    int forward = 0;
    const auto add_forward = [&] { crew.push_back({Unit::Pass::kForward, stage, forward++}); };
    while (forward < std::min(request.micro_batches, ahead(stage))) add_forward();
    for (int backward = 0; backward < request.micro_batches; ++backward) {
      crew.push_back({Unit::Pass::kInputGrad, stage, backward});
      if (forward < request.micro_batches) add_forward();
    }
  }
  return out;
}

}  // namespace

Timetable zero_bubble_h1(const ScheduleRequest& request) {
  Timetable out = one_by_one(request, [&](int stage) { return request.crews - stage; });
  fill_with_weight_grads(out, request.crews);
  return out;
}

Timetable zero_bubble_h2(const ScheduleRequest& request) {
  Timetable out = one_by_one(request, [&](int stage) { return 2 * (request.crews - stage) - 1; });
  fill_with_weight_grads(out, 2 * request.crews - 1);
  return out;
}

}  // namespace trireme::schedule
