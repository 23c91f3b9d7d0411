// Losses in which only some values count, such as those of labels that are not ignored.
#pragma once

#include "trireme/ops/ops.h"

namespace trireme {

// What is trained is the sum of `values` divided by how many are `counted`, in the whole batch, and an evaluation is
// averaged over those of all its batches.
struct CountedLoss {
  CountedLoss(Tensor of_all = {}, Tensor which = {}) : values(of_all), counted(which) {}  // NOLINT: a plain loss
  Tensor values;   // [*], 0 where they do not count
  Tensor counted;  // bool[*]; empty: all
};

// cross_entropy, of which the labels count that are not ignored (PyTorch's mean). Takes a sum over all ranks before the
// backward pass.
CountedLoss cross_entropy_counted(const Tensor& logits, const Tensor& labels, const MeanLossOptions& options = {});

}  // namespace trireme
