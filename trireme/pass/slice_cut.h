// How a value that several ranks have whole is cut into slices of it, one for each of them.
#pragma once

#include <optional>

#include "trireme/ir/program.h"

namespace trireme {

struct SliceCut {
  Attrs attrs;      // of the local cut, and of the gather that undoes it
  Layout layout;    // of a slice
  TensorType type;  // its own
};

// Along the first dimension that divides evenly over the ranks that have the same, over as many of them as can be.
// Nothing where only one rank has it, where no dimension divides, and for truth values, which are not sent.
std::optional<SliceCut> slice_cut(const Program& program, ValueId id);

}  // namespace trireme
