// Element-wise reductions of several buffers, in the order given: the one place where ranks' values
// meet, so that every transport and every rank computes the same bits. bf16 is summed in f32 and
// rounded once; integers wrap; max and min keep a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/comm/comm.h"

namespace trireme::comm {

// outs[...][i] = sources[0][i] op sources[1][i] op ... for i in [0, count). An out may be one of
// the sources.
void reduce_in_order(Reduce op, DType dtype, std::span<const std::byte* const> sources,
                     std::span<std::byte* const> outs, int64_t count);

}  // namespace trireme::comm
