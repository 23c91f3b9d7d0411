#include "trireme/planner/outer/least_part.h"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

using LeastField = int64_t PartPrice::*;
constexpr std::array kOfRows{&PartPrice::forward, &PartPrice::input_grad,     &PartPrice::weight_grad,
                             &PartPrice::again,   &PartPrice::moving_forward, &PartPrice::moving_backward,
                             &PartPrice::kept,    &PartPrice::waiting};
constexpr std::array kOfPasses{&PartPrice::forward, &PartPrice::input_grad,     &PartPrice::weight_grad,
                               &PartPrice::again,   &PartPrice::moving_forward, &PartPrice::moving_backward};
constexpr std::array kOfSteps{&PartPrice::update, &PartPrice::sync,  &PartPrice::gradients, &PartPrice::work,
                              &PartPrice::coming, &PartPrice::going, &PartPrice::host,      &PartPrice::disk};

int64_t least_persistent(int64_t persistent, const LeastPartOf& of) {
  constexpr int64_t kWhole = 1024;
  if (of.zero == 0 && !of.state_elsewhere) return persistent;
  const int64_t parameters = of.parameter_bytes / ((of.parameter_bytes + of.state_bytes) / kWhole + 1);
  const int64_t kept = of.zero >= 3 && !of.state_elsewhere ? persistent : persistent * parameters / kWhole;
  return of.zero >= 3 ? kept / of.ranks : kept;
}

}  // namespace

PartPrice least_part(const PartPrice& alone, const LeastPartOf& of) {
  PartPrice out;
  for (const LeastField field : kOfRows) out.*field = alone.*field * of.rows / of.rows_of_table;
  out.persistent = least_persistent(alone.persistent, of);
  if (of.is_own && of.zero == 0) {
    for (const LeastField field : kOfSteps) {
      const bool is_time = field == &PartPrice::update || field == &PartPrice::sync;
      if (is_time || !of.state_elsewhere) out.*field = alone.*field;
    }
  }
  return out;
}

PartPrice least_of_cut_part(const PartPrice& of_tp, int64_t cp, int64_t ep) {
  PartPrice out{.moving_forward = of_tp.moving_forward / cp, .moving_backward = of_tp.moving_backward / cp};
  if (ep > 1) return out;
  for (const LeastField field : {&PartPrice::forward, &PartPrice::input_grad, &PartPrice::weight_grad})
    out.*field = of_tp.*field / cp;
  return out;
}

void raise_passes(PartPrice& part, const PartPrice& least) {
  for (const LeastField field : kOfPasses) part.*field = std::max(part.*field, least.*field);
}

void raise_moved(PartPrice& part, const PartPrice& least) {
  for (const LeastField field : {&PartPrice::moving_forward, &PartPrice::moving_backward, &PartPrice::sync})
    part.*field = std::max(part.*field, least.*field);
}

void raise_part(PartPrice& part, const PartPrice& least) {
  for (const LeastField field : kOfRows) part.*field = std::max(part.*field, least.*field);
  for (const LeastField field : kOfSteps) part.*field = std::max(part.*field, least.*field);
  part.persistent = std::max(part.persistent, least.persistent);
}

}  // namespace trireme
