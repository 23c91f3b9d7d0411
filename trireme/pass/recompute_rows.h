// What the backward pass reads and costs little to make again is not kept for it: activation functions and norms are
// computed a second time, just before their first reader there, from operands that are kept anyway. That reader changes
// places with the op before it where it can, so that what is made again does not lie beside that op's results.
//
// Before: any program. After: the same results, with the same bits; each such op is there twice. It runs first, so that
// the other passes place and fuse the second ones too.
#pragma once

#include "trireme/ir/program.h"

namespace trireme {

Program recompute_rows(const Program& program);

}  // namespace trireme
