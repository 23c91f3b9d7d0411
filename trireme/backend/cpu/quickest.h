// Which of several ways to do the same takes the least time on this machine (mesh/tuning.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/cores.h"
#include "trireme/base/thread_pool.h"

namespace trireme::cpu {

// Of work that is worth measuring: a tenth of a millisecond or more.
inline constexpr double kLeastMeasuredFlops = 32e6;

struct Contest {
  size_t ways = 0;
  size_t usual = 0;
  double seconds = 0.08;     // that are spent on all ways, about; if a call takes long, more: a few turns
  std::vector<double> work;  // that a call of each does, in any unit; none: all do the same
  // One more thread each, on these cores, does what is measured for as long as that takes: the time of a way is the one
  // that it takes beside its like, as in a job of so many threads. What they run on may be one core's other threads.
  std::span<const Cores> others = {};
};

// Calls run(way, thread) for each way in turns and returns the one with the least time of the calling thread's
// processor for its work: the mean of the middle half of its times. Ways that take much longer than another are left
// out of later turns. The usual way stays unless another takes 3 % less. The calling thread is 0, the others come
// after; what one of them throws is thrown here.
size_t quickest_of(const Contest& contest, FunctionRef<void(size_t way, size_t thread)> run);

// So many others that their operands, of so many bytes each, take no more than a fixed amount, a quarter of a GiB: what
// is measured as a job starts must not need more memory than the job.
inline std::span<const Cores> some_of(std::span<const Cores> others, int64_t bytes_of_each) {
  constexpr int64_t kMostBytes = int64_t{256} << 20;
  const auto most = static_cast<size_t>(kMostBytes / std::max<int64_t>(bytes_of_each, 1));
  return others.first(std::min(others.size(), most));
}

}  // namespace trireme::cpu
