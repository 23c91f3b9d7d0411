#include "trireme/backend/cpu/quickest.h"

#include <time.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace trireme::cpu {
namespace {

constexpr size_t kLeastTurns = 3, kMostTurns = 15;
constexpr double kMustSave = 0.03;      // of the usual way's time: less may be noise
constexpr double kMuchLonger = 2;       // than the least time of all
constexpr double kFarFromNoise = 2e-3;  // seconds of a call whose one time says that much

// Of the processor, by this thread: what else runs on the machine counts less than in the time of day.
double worked_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of the middle half.
double mean_of_middle(std::vector<double> times) {
  std::ranges::sort(times);
  const size_t quarter = times.size() / 4;
  const std::span<const double> middle(times.data() + quarter, times.size() - 2 * quarter);
  return std::accumulate(middle.begin(), middle.end(), 0.0) / static_cast<double>(middle.size());
}

}  // namespace

size_t quickest_of(const Contest& contest, FunctionRef<void(size_t way)> run) {
  const size_t ways = contest.ways;
  const double begin = worked_s();
  for (size_t way = 0; way < ways; ++way) run(way);  // which makes code and brings memory near
  std::vector<std::vector<double>> times(ways);
  std::vector<bool> is_left_out(ways);
  double shortest = std::numeric_limits<double>::infinity();
  for (size_t turn = 0; turn < kMostTurns && (turn < kLeastTurns || worked_s() - begin < contest.seconds); ++turn) {
    for (size_t way = 0; way < ways; ++way) {
      if (is_left_out[way]) continue;
      const double start = worked_s();
      run(way);
      const double seconds = worked_s() - start;
      const double took = contest.work.empty() ? seconds : seconds / contest.work[way];
      times[way].push_back(took);
      shortest = std::min(shortest, took);
      is_left_out[way] = seconds > kFarFromNoise && took > kMuchLonger * shortest;
    }
  }
  size_t best = contest.usual;
  double least = 0;
  for (size_t way = 0; way < ways; ++way) {
    const double mean = mean_of_middle(times[way]) * (way == contest.usual ? 1 - kMustSave : 1);
    if (way == 0 || mean < least) best = way, least = mean;
  }
  return best;
}

}  // namespace trireme::cpu
