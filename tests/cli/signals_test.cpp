// What signals do to a job: to end after the step, with everything saved and 128 + signal as the exit code; to save and
// go on.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tests/cli/program.h"
#include "trireme/ckpt/checkpoint.h"

namespace trireme::cli::signals_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class SignalsTest : public CliTest {
 protected:
  SignalsTest() { write_gpt(); }
  static Words train(const std::string& out, const char* ranks) {
    return {"train", "gpt.toml", "--quiet", "--out", out, "-n", ranks, "--set", "train.steps=10000000"};
  }
  int steps(const std::string& out) const {
    std::ifstream file(path(out + "/metrics.jsonl"));
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  // Starts a job and waits until it trains.
  bool begin_training(const std::string& out, const char* ranks, const Words& environment = {}) {
    start(train(out, ranks), environment);
    return wait_until([&] { return steps(out) >= 2; });
  }
  int saved_as_asked() const {
    constexpr std::string_view kSaid = ", as SIGUSR1 asked";
    const std::string err = err_so_far();
    int count = 0;
    for (size_t at = err.find(kSaid); at != std::string::npos; at = err.find(kSaid, at + 1)) ++count;
    return count;
  }
  bool ignores(int process, int signal) const {
    std::ifstream file(fmt::format("/proc/{}/status", process));
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("SigIgn:")) return (std::stoull(line.substr(8), nullptr, 16) >> (signal - 1) & 1) != 0;
    }
    return false;
  }
};

TEST_F(SignalsTest, the_job_ends_in_order_with_128_and_the_signal_on_any_number_of_ranks) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    for (const char* ranks : {"1", "2"}) {
      SCOPED_TRACE(fmt::format("SIG{} on {}", sigabbrev_np(signal), ranks));
      const std::string out = fmt::format("run{}_{}", signal, ranks);
      ASSERT_TRUE(begin_training(out, ranks)) << err_so_far();
      ASSERT_EQ(::kill(pid(), signal), 0);
      const Outcome stopped = wait();
      EXPECT_EQ(stopped.code, 128 + signal) << stopped.err;
      EXPECT_THAT(stopped.out, HasSubstr("Go on with the same command and --resume."));
      EXPECT_GE(ckpt::Reader(path(out + "/checkpoints")).step(), 2);
      EXPECT_THAT(left_over(), IsEmpty());
    }
  }
}

TEST_F(SignalsTest, a_signal_to_one_rank_ends_the_job_in_order) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    for (const size_t rank : {size_t{0}, size_t{1}}) {
      SCOPED_TRACE(fmt::format("SIG{} to rank {}", sigabbrev_np(signal), rank));
      const std::string out = fmt::format("run{}_{}", signal, rank);
      start([&] {
        Words words = train(out, "2");
        words.insert(words.end(), {"--restarts", "1"});  // it is no failure
        return words;
      }());
      ASSERT_TRUE(wait_until([&] { return steps(out) >= 2 && workers().size() == 2; })) << err_so_far();
      std::vector<int> all = workers();
      std::ranges::sort(all);  // rank 0 is started first
      ASSERT_EQ(::kill(all[rank], signal), 0);
      const Outcome stopped = wait();
      EXPECT_EQ(stopped.code, 128 + signal) << stopped.err;
      EXPECT_THAT(stopped.err, HasSubstr(fmt::format("interrupted by SIG{}, sent to rank ", sigabbrev_np(signal))));
      EXPECT_THAT(stopped.err, HasSubstr("; all ranks ended cleanly"));
      EXPECT_THAT(stopped.out, HasSubstr("Stopped after step "));
      EXPECT_GE(ckpt::Reader(path(out + "/checkpoints")).step(), 2);
    }
  }
}

// As `scancel` and service managers do it.
TEST_F(SignalsTest, a_signal_to_launcher_and_ranks_at_once_is_one_wish) {
  ASSERT_TRUE(begin_training("run", "2")) << err_so_far();
  std::vector<int> all = workers();
  ASSERT_EQ(all.size(), 2U);
  all.push_back(pid());
  for (const int process : all) EXPECT_EQ(::kill(process, SIGTERM), 0);
  const Outcome stopped = wait();
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("interrupted by SIGTERM; all ranks ended cleanly"));
  EXPECT_THAT(stopped.out, HasSubstr("Stopped after step "));
}

TEST_F(SignalsTest, usr1_saves_on_all_ranks_and_the_job_goes_on) {
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(ranks);
    const std::string out = fmt::format("run{}", ranks);
    const std::string root = path(out + "/checkpoints");
    ASSERT_TRUE(begin_training(out, ranks, {"TRIREME_LOG=warn,train=info"})) << err_so_far();
    EXPECT_FALSE(ckpt::find_latest(root));
    // To the launcher, and to a rank that is not the first: each saves once.
    int asked = 0;
    for (const bool to_rank : {false, true}) {
      std::vector<int> all = workers();
      std::ranges::sort(all);
      ASSERT_EQ(::kill(to_rank && !all.empty() ? all.back() : pid(), SIGUSR1), 0);
      ++asked;
      EXPECT_TRUE(wait_until([&] { return saved_as_asked() >= asked; })) << err_so_far();
      const int done = steps(out);
      EXPECT_TRUE(wait_until([&] { return steps(out) > done + 2; }));
      EXPECT_EQ(saved_as_asked(), asked) << err_so_far();
      EXPECT_TRUE(ckpt::find_latest(root));
    }
    ASSERT_EQ(::kill(pid(), SIGTERM), 0);
    const Outcome stopped = wait();
    EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
  }
}

// Before training begins there is nothing to save, and what would end the process does not.
TEST_F(SignalsTest, usr1_that_comes_early_ends_nothing) {
  start(train("run", "2"));
  ASSERT_TRUE(wait_until([&] { return workers().size() == 2; }));
  ASSERT_EQ(::kill(pid(), SIGUSR1), 0);
  EXPECT_TRUE(wait_until([&] { return ckpt::find_latest(path("run/checkpoints")).has_value(); })) << err_so_far();
  ASSERT_EQ(::kill(pid(), SIGTERM), 0);
  EXPECT_EQ(wait().code, 128 + SIGTERM);
  // A program that does not listen is left alone.
  start({"launch", "-n", "1", "--", "sh", "-c", "touch up; while ! test -e go; do sleep 0.02; done"});
  ASSERT_TRUE(wait_until([&] { return fs::exists(path("up")); }));
  ASSERT_EQ(::kill(pid(), SIGUSR1), 0);
  write("go", "");
  EXPECT_EQ(wait().code, 0);
}

// UCX catches SIGHUP before main() begins.
TEST_F(SignalsTest, nohup_is_respected) {
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(ranks);
    const std::string out = fmt::format("run{}", ranks);
    Program program = begin(out, train(out, ranks), {}, [] { return ::signal(SIGHUP, SIG_IGN) != SIG_ERR; });
    ASSERT_TRUE(soon([&] { return steps(out) >= 2; })) << err_of(program);
    EXPECT_TRUE(ignores(program.pid, SIGHUP));
    ASSERT_EQ(::kill(program.pid, SIGHUP), 0);
    const int done = steps(out);
    EXPECT_TRUE(soon([&] { return steps(out) > done + 1; })) << err_of(program);
    ASSERT_EQ(::kill(program.pid, SIGTERM), 0);
    EXPECT_EQ(finish(program).code, 128 + SIGTERM);
  }
}

}  // namespace
}  // namespace trireme::cli::signals_test
