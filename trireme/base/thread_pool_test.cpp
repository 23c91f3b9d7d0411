#include "trireme/base/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <string>

#include "trireme/base/error.h"

namespace trireme::thread_pool_test {
namespace {

std::string error_text(FunctionRef<void()> body) {
  try {
    body();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

TEST(ThreadPool, EveryTaskRunsOnceWhateverTheThreads) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> runs(1000);

    pool.run(1000, [&](int64_t task, int thread) {
      ASSERT_GE(thread, 0);
      ASSERT_LT(thread, threads);
      ++runs[static_cast<size_t>(task)];
    });

    for (const auto& count : runs) EXPECT_EQ(count, 1) << threads << " threads";
  }
}

TEST(ThreadPool, ManyShortJobsInARowLoseNoTask) {
  for (int spins : {0, 50, ThreadPool::kDefaultSpins}) {
    ThreadPool pool(3, spins);
    int64_t expected = 0;
    std::atomic<int64_t> sum{0};

    for (int64_t job = 0; job < 5000; ++job) {
      const int64_t tasks = job % 7;
      pool.run(tasks, [&](int64_t task, int) { sum += task + job; });
      expected += tasks * job + tasks * (tasks - 1) / 2;
    }

    EXPECT_EQ(sum, expected) << spins << " spins";
  }
}

TEST(ThreadPool, ParallelForCutsByGrainAndNotByThreads) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::array<std::atomic<int64_t>, 4> end_of{};

    pool.parallel_for(10, 3, [&](int64_t begin, int64_t end) { end_of[static_cast<size_t>(begin / 3)] = end; });

    EXPECT_EQ(end_of[0], 3);
    EXPECT_EQ(end_of[1], 6);
    EXPECT_EQ(end_of[2], 9);
    EXPECT_EQ(end_of[3], 10);
  }
}

TEST(ThreadPool, TheLowestFailingTaskIsReportedAndThePoolWorksOn) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<int> ran{0};
    const auto failing = [&] {
      pool.run(64, [&](int64_t task, int) {
        ++ran;
        require(task % 10 != 3, "task {} is bad", task);
      });
    };

    EXPECT_EQ(error_text(failing), "task 3 is bad");
    EXPECT_EQ(ran, 64);

    pool.run(10, [&](int64_t, int) { ++ran; });
    EXPECT_EQ(ran, 74);
  }
}

TEST(ThreadPool, ACallFromInsideATaskRunsOnItsThread) {
  ThreadPool pool(3);
  std::atomic<int> inner{0};
  std::atomic<int> moved{0};

  pool.run(8, [&](int64_t, int outer_thread) {
    pool.run(5, [&](int64_t, int thread) {
      ++inner;
      if (thread != outer_thread) ++moved;
    });
  });

  EXPECT_EQ(inner, 40);
  EXPECT_EQ(moved, 0);
}

TEST(ThreadPool, SizesOutOfRangeAreRefused) {
  EXPECT_EQ(error_text([] { ThreadPool pool(0); }), "thread pool: 0 threads; it needs 1 to 4096");
}

}  // namespace
}  // namespace trireme::thread_pool_test
