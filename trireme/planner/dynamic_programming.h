// dynamic_programming: assigns all axes of the mesh at once, exactly; for few ranks.
#pragma once

#include "trireme/planner/axis_search.h"

namespace trireme {

// Where all at once have too many choices, or some were left out, also one axis after the other
// (recursive_programming.h), and the notes say so. Throws what AxisSearch::over throws.
SearchResult dynamic_programming(AxisSearch& search);

}  // namespace trireme
