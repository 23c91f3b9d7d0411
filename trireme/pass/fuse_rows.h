// Ops that work on rows of the same tensors become one that works through all of them block by block (op/row_steps.h),
// so that a tensor between two of them is read while it is in the cache, and is not stored where nobody else reads it:
// bias and gelu, bias and residual and layer norm, casts and chains of elementwise ops.
//
// Before: any program. After: the same values with the same bits, except those that nobody reads any more. It runs
// after the passes that choose an order, since a group takes the place of its last op. Only the pass `homes` comes
// later.
#pragma once

#include <string>

#include "trireme/ir/program.h"

namespace trireme {

// What was fused, a line each: "fused 2 ops at 'h.0.mlp': add, gelu".
std::string fused_text(const Program& program);

}  // namespace trireme
