// recursive_programming: assigns one prime axis of the mesh after the other, each exactly; for many ranks.
#pragma once

#include <vector>

#include "trireme/planner/axis_search.h"

namespace trireme {

// What an axis was given stays. Throws what AxisSearch::over throws.
SearchResult recursive_programming(AxisSearch& search);
// The same in this order of the prime axes.
SearchResult recursive_programming(AxisSearch& search, const std::vector<AxisGroup>& axes);

}  // namespace trireme
