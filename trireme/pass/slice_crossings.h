// Values that cross from one crew of a pipeline to another are sent in slices. Before: a value that several ranks of a
// crew have whole (between tensor parallel layers, activations and their gradients) is sent by each of them to its
// counterpart in the other crew. After: each sends its slice, and the ranks that need the value gather the slices among
// themselves (Narayanan et al., 2021, the scatter/gather optimization). It pays if links between crews are slower than
// those inside one. The bits are the same.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "trireme/cost/op_seconds.h"
#include "trireme/ir/program.h"
#include "trireme/pass/pass_remark.h"

namespace trireme {

// Of the program of all stages, with its micro-batches; crew_of_stage is as crews_of_stages gives it. What crosses is
// sliced where that is quicker by these rates; none: wherever it can be. What cannot be is said to `remarks`.
Program slice_crossings(Program program, std::span<const int> crew_of_stage, const std::optional<Rates>& rates = {},
                        std::vector<PassRemark>* remarks = nullptr);

}  // namespace trireme
