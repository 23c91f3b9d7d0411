// dynamic_programming: assigns all axes of the mesh at once, exactly; for few ranks.
#pragma once

#include "trireme/planner/axis_search.h"

namespace trireme {

// In each order of the mesh's axes, of up to three names: a dimension that several axes cut is cut by them in one
// order. Where all at once have too many choices, or some were left out, also one axis after the other
// (recursive_programming.h). Of both, and of orders that are not tried, the notes say so. Throws what AxisSearch::over
// throws.
SearchResult dynamic_programming(AxisSearch& search);

}  // namespace trireme
