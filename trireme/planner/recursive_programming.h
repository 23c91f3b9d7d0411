// recursive_programming: assigns one prime axis of the mesh after the other, each exactly; for many ranks.
#pragma once

#include "trireme/planner/axis_search.h"

namespace trireme {

// What an axis was given stays. Throws what AxisSearch::over throws.
SearchResult recursive_programming(AxisSearch& search);

}  // namespace trireme
