#include "trireme/train/loop/run_lock.h"

#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"

namespace {
int refused_with = 0;  // what flock says instead of locking; 0: it locks
}

// Called in place of the C library's: the file systems at hand all have locks.
extern "C" int flock(int file, int how) {
  if (refused_with == 0) return static_cast<int>(syscall(SYS_flock, file, how));
  errno = refused_with;
  return -1;
}

namespace trireme::run_lock_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    return e.text();
  }
}

TEST(RunLock, the_second_job_is_told_of_the_first_and_may_come_after_it) {
  const TempDirectory temporary;
  const std::string folder = temporary / "a/run";
  RunLock::check(folder);  // nothing is there, and nothing is made
  EXPECT_FALSE(is_directory(folder));
  {
    const RunLock first(folder, "trireme train a.toml");
    const auto named = AllOf(HasSubstr("another job is writing to '" + folder + "' (trireme train a.toml, process " +
                                       std::to_string(getpid()) + " on "),
                             HasSubstr(", since 20"), HasSubstr("--out"));
    EXPECT_THAT(refusal([&] { const RunLock second(folder, "b"); }), named);
    EXPECT_THAT(refusal([&] { RunLock::check(folder); }), named);
  }
  EXPECT_EQ(refusal([&] { RunLock::check(folder); }), "");
  const RunLock third(folder, "c");
}

TEST(RunLock, a_killed_job_holds_it_no_longer) {
  const TempDirectory temporary;
  const std::string folder = temporary / "run";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder, "killed");
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(refusal([&] { RunLock::check(folder); }), HasSubstr("killed, process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(refusal([&] { const RunLock next(folder, "next"); }), "");
  for (const int end : ready) ::close(end);
}

TEST(RunLock, what_stands_in_the_file_is_shown_without_control_characters) {
  const TempDirectory temporary;
  const std::string folder = temporary / "run";
  const RunLock lock(folder, "\x1b[31mred\x7f");
  EXPECT_THAT(refusal([&] { RunLock::check(folder); }), HasSubstr("(?[31mred?, process "));
}

TEST(RunLock, a_disk_without_locks_is_told_of_and_written_to) {
  for (const int error : {ENOLCK, EOPNOTSUPP}) {
    const TempDirectory temporary;
    const std::string folder = temporary / "run";
    std::vector<std::string> lines;
    set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
    refused_with = error;
    EXPECT_EQ(refusal([&] { RunLock::check(folder); }), "");
    EXPECT_EQ(refusal([&] { const RunLock lock(folder, "a"); }), "");
    refused_with = 0;
    set_log_sink({});
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_THAT(lines[0], HasSubstr("the file system of '" + folder + "' has no locks (" + std::strerror(error) +
                                    "), so a second job there is not noticed; start one at a time"));
  }
}

}  // namespace
}  // namespace trireme::run_lock_test
