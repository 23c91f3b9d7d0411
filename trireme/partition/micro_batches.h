// Gradient accumulation: from the program on a mesh with the axis "micro_batch" to the one that ranks run. What differs
// along the axis is computed for one micro-batch after the other, everything else once; sums over the axis are added up
// as their terms are made. Only the activations of one micro-batch (or of those that are interleaved) are alive at a
// time, unless the model itself needs the whole batch in its middle (statistics of the batch, places of experts). The
// step computes what it would without the axis.
#pragma once

#include "trireme/ir/program.h"

namespace trireme {

struct MicroBatchOptions {
  // Sums are added in a binary tree, as sums over ranks are in invariant mode (comm/reduce.h): more of them are alive.
  bool sums_in_tree = false;
  // So many micro-batches are interleaved: one computes while the others exchange between ranks what they read next. It
  // divides their number. The activations of all of them are alive at the same time.
  int64_t interleave = 1;
  // Only the first so many micro-batches, as if the batch had no more; 0: all of them. They read their parts of the
  // batch's inputs at the same places as among all.
  int64_t first = 0;
};

// Chunks of positions (the axis "seq_chunk") have their forward passes from the first to the last and their backward
// passes from the last to the first: attention reads keys and values of earlier chunks, and their gradients are summed
// up from later ones.
//
// The program itself where its mesh has no such axis. Throws kInvalidArgument for an input other than a batch that is
// cut by the axis, kUnsupported for a collective of the model's own over it.
Program in_micro_batches(const Program& program, const MicroBatchOptions& options = {});

}  // namespace trireme
