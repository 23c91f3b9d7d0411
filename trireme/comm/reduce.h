// Element-wise reductions of several buffers, in a fixed tree: the one place where ranks' values
// meet, so that every transport and every rank computes the same bits. bf16 is summed in f32 and
// rounded once; integers wrap; max and min keep a NaN.
//
// The tree adds neighbours first, then their sums: ((0 1) (2 3)) ((4 5) (6 7)). So sums that 2, 4
// or 8 ranks have each taken over their part of such a tree add up to the bits of one rank
// (backend/cpu/leaves.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/comm/comm.h"

namespace trireme::comm {

// outs[...][i] = sources[0][i] op sources[1][i] op ... for i in [0, count), added in the tree. An out
// may be one of the sources.
void reduce_in_tree(Reduce op, DType dtype, std::span<const std::byte* const> sources, std::span<std::byte* const> outs,
                    int64_t count);

}  // namespace trireme::comm
