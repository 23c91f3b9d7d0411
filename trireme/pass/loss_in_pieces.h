// The last product of a model and the cross-entropy of its result, in pieces of rows: the forward and backward pass of
// one piece come before the next piece begins, so that only the logits of one piece, a number for each of its positions
// and each token of the vocabulary, exist at a time. A vocabulary of 50,257 makes them the largest tensor of a step:
// 200 MiB for 1,024 positions in f32. (Hsu et al., "Liger Kernel: efficient Triton kernels for LLM training", 2024,
// section 3.2, has the same as one kernel.)
//
// Before: any program. After: the same results, but the weight's gradient is summed piece by piece, so its last bits
// may differ. The gradient of the loss must not depend on the logits (that of a mean or a weighted sum does not), and
// nothing else may read the logits. Otherwise nothing changes. It runs before passes that ask who reads what.
#pragma once

#include "trireme/ir/program.h"

namespace trireme {

// Throws kInvalidArgument for less than one piece. Where there are fewer rows than pieces each has one.
Program loss_in_pieces(Program program, int64_t pieces);

}  // namespace trireme
