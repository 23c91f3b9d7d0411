// Fuses all-reduces over the same ranks into buckets, each one operation.
//
// Before: every partial gradient has an all-reduce of its own. After: neighbours in the order in which they become
// ready are one operation with many operands, whose buffers the memory plan lays side by side. A bucket fixes when its members are
// reduced: at the place of its last member. No member moves past its first reader.
#pragma once

#include <cstdint>

#include "trireme/ir/program.h"

namespace trireme {

struct FuseAllReduceOptions {
  int64_t bucket_bytes = int64_t{16} << 20;  // a bucket is closed when the next member would make it larger
};

Program fuse_all_reduce(const Program& program, const FuseAllReduceOptions& options = {});

}  // namespace trireme
