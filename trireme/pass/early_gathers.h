// Gathers weights that are stored in slices one reader ahead.
//
// Before: a weight that is stored cut and read whole is gathered right before the op that reads it, which waits for the
// bytes. After: its gather begins before the reader of the weight before it, and runs under that op (the prefetch of
// ZeRO-3 and FSDP). At most one more weight is whole at a time.
#pragma once

#include "trireme/ir/program.h"

namespace trireme {

Program early_gathers(Program program);

}  // namespace trireme
