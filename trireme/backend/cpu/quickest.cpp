#include "trireme/backend/cpu/quickest.h"

#include <time.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace trireme::cpu {
namespace {

constexpr double kSeconds = 0.08;  // that are spent on all ways, about
constexpr size_t kLeastTurns = 3, kMostTurns = 15;
constexpr double kMustSave = 0.03;      // of the usual way's time: less may be noise
constexpr double kMuchLonger = 1.5;     // than the least time of all
constexpr double kFarFromNoise = 2e-3;  // seconds of a call whose one time says that much

// Of the processor, by this thread: what else runs on the machine counts less than in the time of day.
double worked_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

size_t quickest_of(size_t ways, size_t usual, FunctionRef<void(size_t way)> run) {
  const double begin = worked_s();
  for (size_t way = 0; way < ways; ++way) run(way);  // which makes code and brings memory near
  std::vector<std::vector<double>> times(ways);
  std::vector<bool> is_left_out(ways);
  double shortest = std::numeric_limits<double>::infinity();
  for (size_t turn = 0; turn < kMostTurns && (turn < kLeastTurns || worked_s() - begin < kSeconds); ++turn) {
    for (size_t way = 0; way < ways; ++way) {
      if (is_left_out[way]) continue;
      const double start = worked_s();
      run(way);
      const double took = worked_s() - start;
      times[way].push_back(took);
      shortest = std::min(shortest, took);
      is_left_out[way] = took > kFarFromNoise && took > kMuchLonger * shortest;
    }
  }
  size_t best = usual;
  double least = 0;
  for (size_t way = 0; way < ways; ++way) {
    std::ranges::sort(times[way]);
    const double median = times[way][times[way].size() / 2] * (way == usual ? 1 - kMustSave : 1);
    if (way == 0 || median < least) best = way, least = median;
  }
  return best;
}

}  // namespace trireme::cpu
