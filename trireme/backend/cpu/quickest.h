// Which of several ways to do the same takes the least time on this machine (mesh/tuning.h).
#pragma once

#include <cstddef>

#include "trireme/base/thread_pool.h"

namespace trireme::cpu {

// Of work that is worth measuring: a tenth of a millisecond or more.
inline constexpr double kLeastMeasuredFlops = 32e6;

// Calls run(way) for each way below `ways` in turns, for some hundredths of a second or, if a call takes long, a few
// turns, and returns the one with the least median of the calling thread's processor time. Ways that take much longer
// than another are left out of later turns. The `usual` way stays unless another takes 3 % less.
size_t quickest_of(size_t ways, size_t usual, FunctionRef<void(size_t way)> run);

}  // namespace trireme::cpu
