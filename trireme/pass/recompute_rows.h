// Values that the backward pass reads and that are cheap to compute again are not kept for it: activation functions and
// norms are computed a second time, just before their first reader in the backward pass, from operands that are kept
// anyway. Where possible that reader changes places with the op before it, so that the recomputed values and that op's
// results are not in memory at the same time.
//
// Before: any program. After: the same results, with the same bits; each such op stands in the program twice. It runs
// first, so that the other passes place and fuse the second ones too.
#pragma once

#include "trireme/ir/program.h"

namespace trireme {

Program recompute_rows(const Program& program);

}  // namespace trireme
