// Which of several ways to do the same takes the least time on this machine (mesh/tuning.h).
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/base/thread_pool.h"

namespace trireme::cpu {

// Of work that is worth measuring: a tenth of a millisecond or more.
inline constexpr double kLeastMeasuredFlops = 32e6;

struct Contest {
  size_t ways = 0;
  size_t usual = 0;
  double seconds = 0.08;     // that are spent on all ways, about; if a call takes long, more: a few turns
  std::vector<double> work;  // that a call of each does, in any unit; none: all do the same
};

// Calls run(way) for each way in turns and returns the one with the least time of the calling thread's processor for
// its work: the lower quartile, since what else the machine does only adds to times. Ways that take much longer than
// another are left out of later turns. The usual way stays unless another takes 3 % less.
size_t quickest_of(const Contest& contest, FunctionRef<void(size_t way)> run);

}  // namespace trireme::cpu
