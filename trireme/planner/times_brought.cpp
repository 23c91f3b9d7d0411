#include "trireme/planner/times_brought.h"

#include "trireme/cost/price.h"

namespace trireme {

int64_t TimesBrought::ps(ValueId value, int64_t once_ps) const {
  check_step(static_cast<double>(once_ps) * static_cast<double>(of(value)) * 1e-12);
  return once_ps * of(value);
}

StrategyPrice TimesBrought::all(StrategyPrice once) const {
  for (size_t v = 0; v < once.values.size(); ++v) once.values[v] = ps(static_cast<ValueId>(v), once.values[v]);
  return once;
}

}  // namespace trireme
