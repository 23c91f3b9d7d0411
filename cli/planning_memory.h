// Memory of a process that plans.
#pragma once

namespace trireme::cli {

// From here on this thread's small objects lie in blocks of their own (base/small_blocks.h,
// docs/decisions/0016-blocks-of-planning.md). Only for a process that plans and ends: one that trains gives back what
// it needs no more.
void take_small_blocks();

}  // namespace trireme::cli
