#include "trireme/launch/supervise/hang_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/disk_wait.h"
#include "trireme/base/file.h"
#include "trireme/launch/rank/process_state.h"
#include "trireme/launch/rank/rank_info.h"
#include "trireme/launch/rank/rank_page.h"
#include "trireme/launch/supervise/supervise.h"
#include "trireme/launch/supervise/worker.h"

namespace trireme::launch::hang_watch_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kBusy_s = 3;  // longer than the limit of these tests, which is two seconds

// Runs this program again as three ranks, of which rank 1 does what the test below says while the
// others wait for it in a sum.
LaunchResult result_of(const std::string& body) {
  const TempDirectory logs;
  setenv("TRIREME_HANG_TIMEOUT", "2", 1);
  LaunchOptions options{.ranks = 3,
                        .command = {"/proc/self/exe", "--gtest_filter=HangWorker.DISABLED_" + body,
                                    "--gtest_also_run_disabled_tests", "--gtest_brief=1"},
                        .log_dir = logs.path()};
  LaunchResult result = supervise(options);
  unsetenv("TRIREME_HANG_TIMEOUT");
  return result;
}

TEST(Hang, AStoppedRankIsNamedWithWhatTheOthersWaitFor) {
  const LaunchResult result = result_of("Stops");

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_THAT(result.report, StartsWith("rank 1 (pid "));
  EXPECT_THAT(result.report,
              AllOf(HasSubstr("it has neither run nor waited for other ranks, which wait for it; it is "
                              "stopped by a signal"),
                    HasSubstr("\n  [rank 0 of 3] all_reduce (group world, 3.91 KiB f32) waits for rank 1 (pid "),
                    HasSubstr("\n  [rank 2 of 3] all_reduce (group world, 3.91 KiB f32) waits for rank 1 (pid "),
                    HasSubstr("\n  then [rank ")));
}

TEST(Hang, ARankThatWaitsForALockIsNamed) {
  const LaunchResult result = result_of("LocksItselfOut");

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_THAT(result.report, HasSubstr("which wait for it; it sleeps"));
  // Where it waits for the lock, and the thread that has it.
  EXPECT_THAT(result.report, AllOf(testing::ContainsRegex("\n    thread [0-9]+ \\([^)]*\\):\n      "),
                                   HasSubstr("\n  where its threads are:\n"), HasSubstr("std::thread::join() in "),
                                   HasSubstr("LocksItselfOut_Test::TestBody() in launch_test")));
}

TEST(Hang, ASlowRankIsLeftAlone) {
  const LaunchResult result = result_of("ComputesLong");

  EXPECT_EQ(result.exit_code, 0) << result.report;
}

// Whose threads sleep as if nothing went on.
TEST(Hang, ARankThatWaitsForADiskIsLeftAlone) {
  const LaunchResult result = result_of("WaitsForADisk");

  EXPECT_EQ(result.exit_code, 0) << result.report;
}

TEST(Hang, ARankThatIsStoppedBeforeItJoinsIsNamed) {
  const LaunchResult result = result_of("StopsBeforeItJoins");

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_THAT(result.report, AllOf(HasSubstr("it is stopped by a signal"),
                                   HasSubstr("[rank 0 of 3] joins the job: waits for the other ranks")));
}

TEST(Hang, AProgramMayTakeItsTimeBeforeItJoins) {
  const LaunchResult result = result_of("SleepsBeforeItJoins");

  EXPECT_EQ(result.exit_code, 0) << result.report;
}

// Nobody waits for it: it may do what it likes.
TEST(Hang, ARankThatSleepsAloneIsLeftAlone) {
  const LaunchResult result = result_of("AllSleep");

  EXPECT_EQ(result.exit_code, 0) << result.report;
}

// Processes that sleep, seen at times of the test's own.
class SleepingRanks {
 public:
  explicit SleepingRanks(int count) {
    for (int rank = 0; rank < count; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        for (;;) pause();
      }
      workers_.push_back({.rank = rank, .pid = pid, .page = std::make_shared<SharedPage>()});
      for (int looks = 0; looks < 10'000 && state_of(pid).state != 'S'; ++looks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }
  ~SleepingRanks() {
    for (const Worker& worker : workers_) {
      kill(worker.pid, SIGKILL);
      waitpid(worker.pid, nullptr, 0);
    }
  }
  SleepingRanks(const SleepingRanks&) = delete;
  SleepingRanks& operator=(const SleepingRanks&) = delete;

  // 0: it does not wait for others.
  void waits_since(int rank, double since_s) { page(rank).waiting_since.store(since_s); }
  int culprit_at(double now) { return watch_.look(workers_, now, story_); }
  // The first that is found between two times, or -1.
  int culprit_from(double from, double to) {
    for (int look = 0; from + 0.25 * look < to; ++look) {
      if (const int at = culprit_at(from + 0.25 * look); at >= 0) return at;
    }
    return -1;
  }

 private:
  RankPage& page(int rank) { return workers_[static_cast<size_t>(rank)].page->page(); }

  std::vector<Worker> workers_;
  HangWatch watch_{2};
  std::string story_;
};

// Of two that waited for a third, one goes on a moment before the other.
TEST(Hang, ARankThatHasJustWaitedForOthersHasNotHungSince) {
  SleepingRanks ranks(2);
  ranks.waits_since(0, 100);
  ranks.waits_since(1, 100);
  EXPECT_EQ(ranks.culprit_from(100, 110), -1);
  ranks.waits_since(1, 0);
  EXPECT_EQ(ranks.culprit_from(110, 111.5), -1);
  EXPECT_EQ(ranks.culprit_from(111.5, 113), 1);
}

TEST(Hang, TimeInWhichTheLauncherDidNotRunEitherDoesNotCount) {
  SleepingRanks ranks(2);
  ranks.waits_since(0, 100);
  EXPECT_EQ(ranks.culprit_from(100, 101), -1);
  EXPECT_EQ(ranks.culprit_at(120), -1);
  EXPECT_EQ(ranks.culprit_from(120.25, 122.5), 1);
}

TEST(Hang, AProcessUsesItsProcessorOrNot) {
  const ProcessState before = state_of(getpid());
  const double end = now_s() + 0.2;
  while (now_s() < end) {
  }
  const ProcessState after = state_of(getpid());

  EXPECT_TRUE(before.known);
  EXPECT_EQ(after.state, 'R');
  EXPECT_GT(after.cpu_s, before.cpu_s);
  EXPECT_FALSE(state_of(0).known);
}

TEST(Hang, APageKeepsTheLastWordAndItsTime) {
  SharedPage shared;
  auto& page = const_cast<RankPage&>(shared.page());
  page.tell("a");
  const double since = page.waiting_since.load();
  page.tell("b");

  EXPECT_GT(since, 0);
  EXPECT_EQ(page.waiting_since.load(), since);
  EXPECT_EQ(page.read(), "b");
  page.tell(std::string(5000, 'x'));
  EXPECT_EQ(page.read(), std::string(RankPage::kText - 1, 'x'));
  page.tell("");
  EXPECT_EQ(page.waiting_since.load(), 0);
}

// The bodies of ranks, run only by the tests above in processes of their own.

template <class Body, class Before = void (*)(int)>
[[noreturn]] void sum_after(
    Body body, Before before = [](int) {}) {
  try {
    const RankInfo info = find_rank();
    before(info.rank);
    const auto world = join(info);
    body(info.rank);
    std::vector<float> values(1000, 1);
    world->all()
        .all_reduce({reinterpret_cast<std::byte*>(values.data()), {DType::kF32, Shape{1000}}}, comm::Reduce::kSum)
        .wait();
    world->all().barrier().wait();
  } catch (const Error& error) {
    std::_Exit(report_failure(error) ? exit_code(error.kind()) : 98);
  }
  std::_Exit(0);
}

void compute(double seconds) {
  for (const double end = now_s() + seconds; now_s() < end;) {
  }
}

// As where a process ends while its files are read: this one opens, and reading it is an error.
TEST(ProcText, of_a_file_that_cannot_be_read_is_empty) {
  EXPECT_EQ(proc_text("/proc/self/mem"), "");
  EXPECT_EQ(proc_text("/proc/self/gone"), "");
  EXPECT_THAT(proc_text("/proc/self/stat"), testing::HasSubstr(")"));
}

TEST(HangWorker, DISABLED_Stops) {
  sum_after([](int rank) {
    if (rank == 1) raise(SIGSTOP);
  });
}

TEST(HangWorker, DISABLED_StopsBeforeItJoins) {
  sum_after([](int) {},
            [](int rank) {
              if (rank == 1) raise(SIGSTOP);
            });
}

TEST(HangWorker, DISABLED_SleepsBeforeItJoins) {
  sum_after([](int) {},
            [](int rank) {
              if (rank == 1) std::this_thread::sleep_for(std::chrono::duration<double>(kBusy_s));
            });
}

TEST(HangWorker, DISABLED_LocksItselfOut) {
  sum_after([](int rank) {
    static std::timed_mutex mutex;
    if (rank != 1) return;
    mutex.lock();
    std::thread([] { (void)mutex.try_lock_for(std::chrono::seconds(60)); }).join();
  });
}

TEST(HangWorker, DISABLED_ComputesLong) {
  sum_after([](int rank) {
    if (rank == 1) compute(kBusy_s);
  });
}

TEST(HangWorker, DISABLED_WaitsForADisk) {
  sum_after([](int rank) {
    if (rank != 1) return;
    std::thread([] {
      const DiskWait waits;
      std::this_thread::sleep_for(std::chrono::duration<double>(kBusy_s));
    }).join();
  });
}

TEST(HangWorker, DISABLED_AllSleep) {
  sum_after([](int) { std::this_thread::sleep_for(std::chrono::duration<double>(kBusy_s)); });
}

}  // namespace
}  // namespace trireme::launch::hang_watch_test
