// The last product of a model and the cross-entropy of what it makes, in pieces of rows: forward and backward of one
// piece come before the next piece begins, so that the logits, one number for each position and token known, are there
// for one piece at a time. A vocabulary of 50,257 makes them the largest tensor of a step: 200 MiB for 1,024 positions
// in f32. (Hsu et al., "Liger Kernel: efficient Triton kernels for LLM training", 2024, section 3.2, has the same as
// one kernel.)
//
// Before: any program. After: the same results; sums over rows in the weight's gradient add up piece by piece, so its
// last bits may differ. The gradient of the loss may not depend on the logits, as that of a mean or of a weighted sum
// does not; the logits may be read by nothing else. Where that is not so nothing changes. It runs before passes that
// ask who reads what.
#pragma once

#include "trireme/ir/program.h"

namespace trireme {

// Throws kInvalidArgument for less than one piece. Where there are fewer rows than pieces each has one.
Program loss_in_pieces(Program program, int64_t pieces);

}  // namespace trireme
