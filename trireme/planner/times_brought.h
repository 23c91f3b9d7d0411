// How often a step brings each value to its readers: weights to those of each micro-batch, all else once.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/partition/strategy_price.h"

namespace trireme {

struct TimesBrought {
  std::vector<int64_t> of_values = {};  // none: each once

  int64_t of(ValueId value) const { return of_values.empty() ? 1 : of_values[static_cast<size_t>(value)]; }
  // Of what bringing it once takes. Throws as sum_ps (cost/price.h).
  int64_t ps(ValueId value, int64_t once_ps) const;
  // The terms of a strategy, each value as often as it is brought.
  StrategyPrice all(StrategyPrice once) const;
};

}  // namespace trireme
