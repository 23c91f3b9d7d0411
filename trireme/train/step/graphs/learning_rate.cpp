#include "trireme/train/step/graphs/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme {

namespace {

constexpr NameOf<Schedule::Kind> kKindsOfSchedule[] = {
    {"constant", Schedule::Kind::kConstant}, {"linear", Schedule::Kind::kLinear}, {"cosine", Schedule::Kind::kCosine}};

}  // namespace

std::vector<Key> keys_of(Schedule& schedule) {
  return {{.name = "schedule",
           .target = one_of(&schedule.kind, kKindsOfSchedule),
           .doc = "constant, linear or cosine",
           .flag = "--lr-schedule",
           .of_run = true},
          {.name = "warmup",
           .target = &schedule.warmup_steps,
           .doc = "steps over which the rate rises from 0",
           .check = check_not_below_0,
           .flag = "--warmup",
           .of_run = true},
          {.name = "final_ratio",
           .target = &schedule.final_ratio,
           .doc = "the last step's rate as a share of the peak",
           .check = check_not_negative,
           .flag = "--final-ratio",
           .of_run = true,
           .no_effect_with = "schedule = 'constant'"}};
}

double rate_at(const Schedule& schedule, double peak, int64_t step, int64_t total) {
  if (step <= schedule.warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.kind == Schedule::Kind::kConstant) return peak;
  const auto after = static_cast<double>(step - schedule.warmup_steps);
  const auto span = static_cast<double>(std::max<int64_t>(1, total - schedule.warmup_steps));
  const double done = std::min(1.0, after / span);
  const double shape =
      schedule.kind == Schedule::Kind::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (schedule.final_ratio + (1 - schedule.final_ratio) * shape);
}

}  // namespace trireme
