#include "trireme/launch/supervise/supervise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/comm/algorithms/backends.h"
#include "trireme/comm/stores/tcp_store.h"
#include "trireme/launch/rank/rank_info.h"

namespace trireme::launch::supervise_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

constexpr std::chrono::seconds kLong{60};

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

// Waits for something another process brings about.
template <class Condition>
bool soon(Condition holds) {
  const Deadline deadline(kLong);
  while (!holds()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

bool is_alive(pid_t pid) {
  if (kill(pid, 0) != 0) return false;
  const std::string status = read_file(fmt::format("/proc/{}/stat", pid));
  return status.find(") Z ") == std::string::npos;  // dead, and not yet reaped by whoever inherited it
}

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    char path[] = "/tmp/trireme-launch-test-XXXXXX";
    dir_ = mkdtemp(path);
  }
  ~LaunchTest() override { std::filesystem::remove_all(dir_); }

  LaunchOptions shell(int ranks, const std::string& script) const {
    return {.ranks = ranks, .command = {"/bin/sh", "-c", script, dir_}, .log_dir = dir_ + "/logs"};
  }
  // This program again, as a rank that runs one of the tests called DISABLED_ below.
  LaunchOptions worker(int ranks, const std::string& body) const {
    return {.ranks = ranks,
            .command = {"/proc/self/exe", "--gtest_filter=LaunchWorker.DISABLED_" + body,
                        "--gtest_also_run_disabled_tests", "--gtest_brief=1"},
            .log_dir = dir_ + "/logs"};
  }
  std::string log_of(int rank) const { return read_file(fmt::format("{}/logs/worker_{}.log", dir_, rank)); }
  pid_t pid_in(const std::string& name) const {
    pid_t pid = 0;
    EXPECT_TRUE(soon([&] { return (pid = std::atoi(read_file(dir_ + "/" + name).c_str())) > 0; })) << name;
    return pid;
  }
  std::string dir_;
};

std::string error_text(const LaunchOptions& options) {
  try {
    supervise(options);
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

TEST_F(LaunchTest, AllRanksEndingWellIsExitCodeZeroAndNothingToSay) {
  const LaunchResult result = supervise(shell(3, "exit 0"));

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.report, "");
  EXPECT_EQ(result.failed_rank, -1);
}

TEST_F(LaunchTest, EachRankFindsItsPlaceInTheEnvironment) {
  const LaunchResult result =
      supervise(shell(3,
                      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR; "
                      "test \"$MASTER_PORT\" -gt 0 && stat -c %a $TRIREME_SECRET_FILE && wc -c < "
                      "$TRIREME_SECRET_FILE; "
                      "echo $TRIREME_SECRET_FILE > $0/secret_$RANK"));

  EXPECT_EQ(result.exit_code, 0) << result.report;
  EXPECT_EQ(log_of(1), "1 3 1 3 127.0.0.1\n600\n64\n");
  EXPECT_EQ(log_of(2), "2 3 2 3 127.0.0.1\n600\n64\n");
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/logs/worker_0.log"));
  const std::string secret_file = read_file(dir_ + "/secret_1");
  EXPECT_FALSE(std::filesystem::exists(secret_file.substr(0, secret_file.size() - 1)));
}

TEST_F(LaunchTest, ThreadsAreGivenToEveryRank) {
  LaunchOptions options = shell(2, "echo $TRIREME_THREADS");
  options.threads = 3;

  EXPECT_EQ(supervise(options).exit_code, 0);
  EXPECT_EQ(log_of(1), "3\n");
}

TEST_F(LaunchTest, ARankThatEndsWithACodeIsNamedWithItsLogAndItsCodeIsPassedOn) {
  const LaunchResult result = supervise(shell(2, "if [ $RANK = 1 ]; then echo about to fail; exit 7; fi; exit 0"));

  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_THAT(
      result.report,
      MatchesRegex("rank 1 \\(pid [0-9]+\\) ended with exit code 7 and gave no reason; its log: .*/logs/worker_1.log\n"
                   "  the end of .*/logs/worker_1.log:\n    about to fail\n"));
}

TEST_F(LaunchTest, AKilledRankIsNamedAndTheOthersAreEnded) {
  const LaunchResult result =
      supervise(shell(3,
                      "echo $$ > $0/pid_$RANK; if [ $RANK = 2 ]; then "
                      "while [ ! -s $0/pid_0 ] || [ ! -s $0/pid_1 ]; do sleep 0.01; done; kill -9 $$; fi; "
                      "exec sleep 1000"));

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.report,
              HasSubstr(fmt::format("rank 2 (pid {}) was killed by signal 9 (SIGKILL)", pid_in("pid_2"))));
  EXPECT_THAT(result.report, HasSubstr("  the launcher ended ranks 0 and 1\n"));
  EXPECT_FALSE(is_alive(pid_in("pid_0")));
  EXPECT_FALSE(is_alive(pid_in("pid_1")));
}

TEST_F(LaunchTest, ARankThatIgnoresSigtermIsKilledAfterTheGrace) {
  LaunchOptions options = shell(2,
                                "echo $$ > $0/pid_$RANK; if [ $RANK = 0 ]; then "
                                "while [ ! -e $0/ready ]; do sleep 0.01; done; exit 5; fi; "
                                "trap '' TERM; touch $0/ready; while :; do sleep 1000; done");
  options.grace = milliseconds(100);

  const LaunchResult result = supervise(options);

  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.report, HasSubstr("  the launcher ended rank 1\n"));
  EXPECT_FALSE(is_alive(pid_in("pid_1")));
}

TEST_F(LaunchTest, WhatARankStartedEndsWithIt) {
  const LaunchResult result = supervise(shell(1, "sleep 1000 & echo $! > $0/child; exit 0"));

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(soon([pid = pid_in("child")] { return !is_alive(pid); }));
}

TEST_F(LaunchTest, ACommandThatDoesNotExistIsTheCallersMistake) {
  LaunchOptions options = shell(2, "");
  options.command = {"./no-such-program"};

  const LaunchResult result = supervise(options);

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.report, HasSubstr("'./no-such-program' could not be started: No such file or directory\n"));
}

TEST_F(LaunchTest, ImpossibleOptionsAreRefused) {
  EXPECT_EQ(error_text({.ranks = 0, .command = {"true"}}),
            "launch: 0 ranks asked for; a job on one host has from 1 to 4096");
  EXPECT_EQ(error_text({.ranks = 2}),
            "launch: no command given; write it after the options, as in 'trireme launch -n 2 "
            "./program'");
  EXPECT_EQ(error_text({.ranks = 2, .command = {"true"}, .threads = -1}),
            "launch: -1 threads of each rank asked for; give 1 to 1024, or 0 for the cores divided by the ranks");
  EXPECT_EQ(error_text({.ranks = 2, .command = {"true"}, .log_dir = "/dev/null/logs"}),
            "launch: cannot make the folder '/dev/null/logs' (Not a directory)");
}

TEST_F(LaunchTest, TemporaryLogsAreKeptOnlyAfterAFailure) {
  setenv("TMPDIR", dir_.c_str(), 1);
  LaunchOptions good = shell(2, "exit 0");
  good.log_dir = "";
  LaunchOptions bad = shell(2, "[ $RANK = 0 ] || { echo broken; exit 1; }");
  bad.log_dir = "";

  EXPECT_EQ(supervise(good).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
  EXPECT_THAT(supervise(bad).report, HasSubstr("    broken\n"));
  EXPECT_FALSE(std::filesystem::is_empty(dir_));
  unsetenv("TMPDIR");
}

TEST_F(LaunchTest, TheFirstErrorIsShownInFullAndTheOthersInALine) {
  const LaunchResult result = supervise(worker(3, "Fails"));

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.report,
            "rank 1: matmul: inner sizes differ\n  while planning\n"
            "  then [rank 2 of 3] barrier: rank 1 is gone\n"
            "  the launcher ended rank 0\n");
}

TEST_F(LaunchTest, RanksMeetAtTheStoreOfTheLauncher) {
  const LaunchResult result = supervise(worker(4, "MeetsAtTheStore"));

  EXPECT_EQ(result.exit_code, 0) << result.report;
}

TEST_F(LaunchTest, RanksJoinAndSumOverEveryTransportOfOneHost) {
  for (const char* transport : {"auto", "shm", "ucx"}) {
    if (transport == std::string("ucx") && !comm::has_ucx()) continue;
    setenv("TRIREME_TRANSPORT", transport, 1);
    const LaunchResult result = supervise(worker(3, "JoinsAndSums"));
    unsetenv("TRIREME_TRANSPORT");
    EXPECT_EQ(result.exit_code, 0) << transport << ": " << result.report;
  }
}

TEST_F(LaunchTest, AKilledRankIsTheCauseAndItsPeersErrorsTheConsequence) {
  const LaunchResult result = supervise(worker(3, "LosesAPeer"));

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_THAT(result.report, StartsWith("rank 1 (pid "));
  EXPECT_THAT(result.report, HasSubstr("was killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(result.report, HasSubstr("\n  then [rank 0 of 3] "));
  EXPECT_THAT(result.report, HasSubstr("\n  then [rank 2 of 3] "));
}

TEST_F(LaunchTest, PinnedRanksRunOnDifferentCores) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  if (CPU_COUNT(&own) < 2) GTEST_SKIP() << "one core";
  LaunchOptions options = shell(2, "grep Cpus_allowed_list /proc/self/status > $0/cores_$RANK");
  options.threads = 1;
  options.pin = true;

  EXPECT_EQ(supervise(options).exit_code, 0);
  const std::string first = read_file(dir_ + "/cores_0");
  const std::string second = read_file(dir_ + "/cores_1");
  EXPECT_THAT(first, MatchesRegex("Cpus_allowed_list:\t[0-9,-]+\n"));
  EXPECT_THAT(second, MatchesRegex("Cpus_allowed_list:\t[0-9,-]+\n"));
  EXPECT_NE(first, second);

  setenv("TRIREME_PIN", "0", 1);
  EXPECT_EQ(supervise(options).exit_code, 0);
  unsetenv("TRIREME_PIN");
  EXPECT_EQ(read_file(dir_ + "/cores_0"), read_file(dir_ + "/cores_1"));
}

// Runs `supervise` in a process of its own, which ends with its exit code, so that it can be sent
// signals.
pid_t supervise_apart(const LaunchOptions& options, const std::string& report_path) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  int code = 99;
  try {
    const LaunchResult result = supervise(options);
    std::ofstream(report_path) << result.report;
    code = result.exit_code;
  } catch (const std::exception&) {
  }
  _exit(code);
}

int exit_code_of(pid_t pid) {
  int status = 0;
  EXPECT_TRUE(soon([&] { return waitpid(pid, &status, WNOHANG) == pid; }));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(LaunchTest, RanksDieWithAKilledLauncher) {
  setenv("TMPDIR", dir_.c_str(), 1);  // a killed launcher cannot remove its secret file
  const pid_t launcher = supervise_apart(shell(2, "echo $$ > $0/pid_$RANK; exec sleep 1000"), dir_ + "/report");
  const pid_t first = pid_in("pid_0");
  const pid_t second = pid_in("pid_1");

  kill(launcher, SIGKILL);

  EXPECT_EQ(exit_code_of(launcher), -SIGKILL);
  EXPECT_TRUE(soon([&] { return !is_alive(first) && !is_alive(second); }));
  unsetenv("TMPDIR");
}

TEST_F(LaunchTest, TheFirstInterruptLetsRanksSaveAndTheJobEndsInOrder) {
  const std::string script =
      "trap 'touch $0/saved_$RANK; exit 0' INT; echo $$ > $0/pid_$RANK; while :; do sleep 0.01; "
      "done";
  const pid_t launcher = supervise_apart(shell(2, script), dir_ + "/report");
  (void)pid_in("pid_0");
  (void)pid_in("pid_1");

  kill(launcher, SIGINT);

  EXPECT_EQ(exit_code_of(launcher), 128 + SIGINT);
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/saved_0"));
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/saved_1"));
  EXPECT_EQ(read_file(dir_ + "/report"), "interrupted by SIGINT; all ranks ended cleanly\n");
}

TEST_F(LaunchTest, TheSecondInterruptEndsRanksThatDoNotListen) {
  const std::string script =
      "trap 'touch $0/heard_$RANK' INT; trap '' TERM; echo $$ > $0/pid_$RANK; while :; do sleep "
      "0.01; done";
  LaunchOptions options = shell(2, script);
  options.grace = milliseconds(50);
  const pid_t launcher = supervise_apart(options, dir_ + "/report");
  const pid_t first = pid_in("pid_0");
  (void)pid_in("pid_1");
  kill(launcher, SIGINT);
  ASSERT_TRUE(
      soon([&] { return std::filesystem::exists(dir_ + "/heard_0") && std::filesystem::exists(dir_ + "/heard_1"); }));
  ASSERT_TRUE(is_alive(first));

  kill(launcher, SIGINT);

  EXPECT_EQ(exit_code_of(launcher), 128 + SIGINT);
  EXPECT_FALSE(is_alive(first));
  EXPECT_EQ(read_file(dir_ + "/report"), "interrupted by SIGINT; the ranks were ended\n");
}

// The bodies of ranks, run only by the tests above in processes of their own.

[[noreturn]] void end_with(const Error& error) {
  std::_Exit(report_failure(error) ? exit_code(error.kind()) : 98);
}

TEST(LaunchWorker, DISABLED_Fails) {
  const RankInfo info = find_rank();
  const auto store =
      comm::tcp_store({.address = info.master_address, .port = info.master_port, .secret = *info.secret});
  if (info.rank == 0) std::this_thread::sleep_for(kLong);
  if (info.rank == 2) {  // hears of rank 1's end before rank 1 can say why
    const Error error(ErrorKind::kComm, "[rank 2 of 3] barrier: rank 1 is gone\n  more");
    (void)report_failure(error);
    store->set("2 failed", "");
    std::_Exit(exit_code(error.kind()));
  }
  (void)store->get("2 failed", std::chrono::milliseconds(kLong));
  Error error(ErrorKind::kInvalidArgument, "matmul: inner sizes differ");
  end_with(error.note("while planning"));
}

TEST(LaunchWorker, DISABLED_MeetsAtTheStore) {
  const RankInfo info = find_rank();
  const auto store =
      comm::tcp_store({.address = info.master_address, .port = info.master_port, .secret = *info.secret});
  store->set(fmt::format("rank/{}", info.rank), std::to_string(info.rank * 10));
  int sum = 0;
  for (int peer = 0; peer < info.world; ++peer) {
    sum += std::stoi(store->get(fmt::format("rank/{}", peer), std::chrono::milliseconds(kLong)));
  }
  std::_Exit(sum == 60 && info.world == 4 ? 0 : 1);
}

View whole(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), {DType::kF32, Shape{static_cast<int64_t>(values.size())}}};
}

TEST(LaunchWorker, DISABLED_JoinsAndSums) {
  const RankInfo info = find_rank();
  const auto world = join(info, {.transport = flag_text("TRIREME_TRANSPORT").value_or("auto")});
  std::vector<float> values(1000, static_cast<float>(info.rank + 1));
  world->all().all_reduce(whole(values), comm::Reduce::kSum).wait();
  const bool good = std::ranges::all_of(values, [](float v) { return v == 6; });
  world->all().barrier().wait();
  std::_Exit(good && world->size() == 3 ? 0 : 1);
}

TEST(LaunchWorker, DISABLED_LosesAPeer) {
  const RankInfo info = find_rank();
  try {
    const auto world = join(info);
    world->all().barrier().wait();  // who has not joined by then would be ended without a word
    if (info.rank == 1) raise(SIGKILL);
    std::vector<float> values(1000);
    world->all().all_reduce(whole(values), comm::Reduce::kSum).wait();
  } catch (const Error& error) {
    end_with(error);
  }
  std::_Exit(97);  // nobody may get here: rank 1 took no part in the sum
}

}  // namespace
}  // namespace trireme::launch::supervise_test
