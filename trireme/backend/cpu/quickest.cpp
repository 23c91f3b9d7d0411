#include "trireme/backend/cpu/quickest.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <exception>
#include <limits>
#include <numeric>
#include <span>
#include <system_error>
#include <thread>
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

// The threads that work beside the calling one.
class Others {
 public:
  using Run = FunctionRef<void(size_t way, size_t thread)>;

  Others(std::span<const Cores> cores, Run run)
      : run_(run), errors_(cores.size()), gate_(static_cast<std::ptrdiff_t>(cores.size()) + 1) {
    for (size_t i = 0; i < cores.size(); ++i) {
      try {
        threads_.emplace_back([this, i, on = cores[i]] {
          run_on(on);  // or else where the system likes
          work(i);
        });
      } catch (const std::system_error&) {  // fewer threads than these are to be had
        gate_.arrive_and_drop();
      }
    }
  }
  ~Others() {
    is_over_ = true;
    gate_.arrive_and_wait();
  }
  Others(const Others&) = delete;
  Others& operator=(const Others&) = delete;

  // Calls fn() while the others run `way` again and again.
  void beside(size_t way, FunctionRef<void()> fn) {
    way_ = way;
    is_done_ = false;
    gate_.arrive_and_wait();
    std::exception_ptr error;
    try {
      fn();
    } catch (...) {
      error = std::current_exception();
    }
    is_done_ = true;
    gate_.arrive_and_wait();
    for (const std::exception_ptr& of_another : errors_) {
      if (!error) error = of_another;
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  void work(size_t i) {
    for (;;) {
      gate_.arrive_and_wait();
      if (is_over_) return;
      try {
        do {
          run_(way_, i + 1);
        } while (!is_done_.load(std::memory_order_relaxed));
      } catch (...) {
        errors_[i] = std::current_exception();
      }
      gate_.arrive_and_wait();
    }
  }

  Run run_;
  size_t way_ = 0;  // written by the calling thread before the gate, read by the others after it, as is is_over_
  bool is_over_ = false;
  std::atomic<bool> is_done_{false};
  std::vector<std::exception_ptr> errors_;  // each thread's own
  std::barrier<> gate_;
  std::vector<std::jthread> threads_;
};

}  // namespace

size_t quickest_of(const Contest& contest, FunctionRef<void(size_t way, size_t thread)> run) {
  const size_t ways = contest.ways;
  const double begin = worked_s();
  Others others(contest.others, run);
  for (size_t way = 0; way < ways; ++way) others.beside(way, [&] { run(way, 0); });  // makes code, brings memory near
  std::vector<std::vector<double>> times(ways);
  std::vector<bool> is_left_out(ways);
  double shortest = std::numeric_limits<double>::infinity();
  for (size_t turn = 0; turn < kMostTurns && (turn < kLeastTurns || worked_s() - begin < contest.seconds); ++turn) {
    for (size_t way = 0; way < ways; ++way) {
      if (is_left_out[way]) continue;
      double seconds = 0;
      others.beside(way, [&] {
        const double start = worked_s();
        run(way, 0);
        seconds = worked_s() - start;
      });
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
