// Fuses all-reduces over the same ranks into buckets, each of which is one operation.
//
// Before: every partial gradient has an all-reduce of its own. After: neighbours in the order in which they become
// ready are one operation with many operands, whose buffers the memory plan lays side by side. All members of a bucket
// are reduced at the place of the last one. No member moves past its first reader. Where buckets end is chosen by a
// model of the step (bucket_model.h, step_times.h), unless the options give it.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/pass/step_times.h"

namespace trireme {

struct FuseAllReduceOptions {
  int64_t bucket_bytes = 0;  // a bucket is closed when the next member would make it larger; 0: by the model
  std::vector<int64_t> bucket_ends =
      {};  // instead: how many gradients, counted in each type and group, stand before each cut
  Rates rates = {};
};

Program fuse_all_reduce(Program program, const FuseAllReduceOptions& options = {});

}  // namespace trireme
