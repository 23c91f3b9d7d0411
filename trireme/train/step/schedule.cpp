#include "trireme/train/step/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme {

Schedule::Kind parse_schedule(const std::string& name) {
  if (name == "constant") return Schedule::Kind::kConstant;
  if (name == "linear") return Schedule::Kind::kLinear;
  if (name == "cosine") return Schedule::Kind::kCosine;
  fail(ErrorKind::kInvalidArgument, "no schedule '{}'.{}", name, suggestion(name, {"constant", "linear", "cosine"}));
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
