// The join of several tables: their sum for labels that go together, minimised over the variables that are not kept.
#pragma once

#include <span>

#include "trireme/planner/solver/weighted.h"

namespace trireme::solver {

// min over all variables that are not kept of the sum of the tables. `sizes` of all variables, by their numbers; `keep`
// ascending. Throws kUnsupported where the result
// would be too large.
Weighted join(std::span<const Weighted* const> tables, std::span<const int> keep, std::span<const int> sizes);

}  // namespace trireme::solver
