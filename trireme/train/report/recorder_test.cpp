#include "trireme/train/report/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme::recorder_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// While it lives, no file of this process grows, as on a full disk.
class FullDisk {
 public:
  FullDisk() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

TEST(Recorder, what_a_full_disk_does_not_take_waits_and_the_run_goes_on) {
  const std::string out = testing::TempDir() + "recorder_" + std::to_string(::getpid());
  std::filesystem::create_directories(out);
  std::vector<std::string> said;
  set_log_sink([&](std::string_view line) { said.emplace_back(line); });
  {
    Recorder recorder({.out = out, .progress = false, .total_steps = 3});
    {
      const FullDisk full;
      for (int64_t step = 1; step <= 3; ++step) recorder.step({.step = step, .loss = 0.5, .seconds = 0.1});
      recorder.validation(3, 0.25, -1);
      EXPECT_THROW(recorder.finish({}), Error);  // of the report
    }
    EXPECT_THAT(said, ElementsAre(HasSubstr("the run goes on, and tries again")));
    EXPECT_EQ(recorder.finish({}), out + "/report.html");
  }
  set_log_sink({});
  EXPECT_THAT(said, SizeIs(1));
  EXPECT_THAT(read_run_log(out + "/metrics.jsonl"), SizeIs(4));
  std::filesystem::remove_all(out);
}

}  // namespace
}  // namespace trireme::recorder_test
