// Two jobs in one folder: the second is refused before it writes anything, and when the first has ended, however, one
// may follow.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>

#include "tests/cli/program.h"
#include "trireme/ckpt/checkpoint.h"

namespace trireme::cli::run_lock_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RunLockTest : public CliTest {
 protected:
  RunLockTest() { write_gpt(); }
  static Words train(const char* ranks, const std::string& steps) {
    return {"train", "gpt.toml",          "--quiet", "--out", "run", "-n", ranks, "--set", "train.steps=" + steps,
            "--set", "train.save_every=5"};
  }
};

TEST_F(RunLockTest, a_second_job_in_the_folder_is_refused_and_harms_nothing) {
  for (const char* first_ranks : {"1", "2"}) {
    SCOPED_TRACE(first_ranks);
    Program first = begin("first", train(first_ranks, "10000000"));
    ASSERT_TRUE(soon([&] { return ckpt::find_latest(path("run/checkpoints")).has_value(); })) << err_of(first);
    const std::string log = read(path("run/logs/worker_1.log"));
    for (const char* ranks : {"1", "2"}) {
      for (const bool resume : {false, true}) {
        Words words = train(ranks, "10");
        if (resume) words.push_back("--resume");
        const Outcome second = run(words);
        EXPECT_EQ(second.code, 2);
        EXPECT_THAT(error_line(second),
                    AllOf(HasSubstr("another job is writing to 'run' (trireme train gpt.toml --quiet --out run -n "),
                          HasSubstr(", process "), HasSubstr("(--out)")));
      }
    }
    EXPECT_EQ(read(path("run/logs/worker_1.log")), log);
    EXPECT_TRUE(is_running(first));
    ::kill(first.pid, SIGKILL);  // and with it its ranks
    finish(first);
    EXPECT_TRUE(soon([&] { return left_over().empty(); }));
    Words again = train(first_ranks, std::to_string(ckpt::Reader(path("run/checkpoints")).step() + 5));
    again.push_back("--resume");
    const Outcome third = run(again);
    EXPECT_EQ(third.code, 0) << third.err;
    std::filesystem::remove_all(path("run"));
  }
}

}  // namespace
}  // namespace trireme::cli::run_lock_test
