#include "trireme/exec/disk/swap_file.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/exec/disk/block_io.h"

namespace {
int interruptions = 0;  // of the next calls by signals
}

// Called in place of the system's, which it calls.
extern "C" int posix_fallocate(int file, off_t offset, off_t bytes) {
  static const auto real = reinterpret_cast<int (*)(int, off_t, off_t)>(dlsym(RTLD_NEXT, "posix_fallocate"));
  if (interruptions == 0) return real(file, offset, bytes);
  --interruptions;
  return EINTR;
}

namespace trireme::swap_file_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

template <class Call>
std::string file_error(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

TEST(SwapFile, is_allocated_to_the_byte_and_has_no_name) {
  const TempDirectory folder;
  const SwapFile file(folder / "swap", 5 * 4096);
  EXPECT_EQ(file.bytes(), 5 * 4096);
  EXPECT_EQ(file.directory(), folder / "swap");
  struct stat info {};
  ASSERT_EQ(::fstat(file.file(), &info), 0);
  EXPECT_EQ(info.st_size, file.bytes());
  EXPECT_GE(info.st_blocks * 512, file.bytes());
  EXPECT_EQ(info.st_nlink, 0U);
  EXPECT_THAT(list_directory(folder / "swap"), IsEmpty());
}

TEST(SwapFile, is_made_although_signals_come) {
  const TempDirectory folder;
  interruptions = 3;
  const SwapFile file(folder / "swap", 4096);
  EXPECT_EQ(interruptions, 0);
  EXPECT_EQ(file.bytes(), 4096);
}

TEST(SwapFile, leaves_nothing_when_its_process_is_killed) {
  const TempDirectory folder;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const SwapFile file(folder.path(), 1 << 20);
    const char made = 1;
    if (::write(ends[1], &made, 1) != 1) _exit(1);
    for (;;) ::pause();
  }
  char made = 0;
  ASSERT_EQ(::read(ends[0], &made, 1), 1);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_THAT(list_directory(folder.path()), IsEmpty());
}

TEST(SwapFile, a_disk_without_room_is_refused_before_anything_is_taken) {
  const TempDirectory folder;
  const int64_t left = free_bytes(folder.path());
  EXPECT_THAT(file_error([&] { SwapFile(folder.path(), 2 * left); }),
              HasSubstr("left; free space there, name another directory with --disk"));
  EXPECT_GT(free_bytes(folder.path()), left / 2);
}

// As of a disk on which another takes the room between the look and the taking.
TEST(SwapFile, what_the_system_does_not_give_is_an_error_with_its_reason) {
  const TempDirectory folder;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 1 << 16;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = file_error([&] { SwapFile(folder.path(), 1 << 20); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(text, HasSubstr("cannot make the tier 'disk', a file of 1048576 bytes in '" + folder.path() + "': "));
  EXPECT_THAT(text, HasSubstr("File too large"));
}

TEST(SwapFile, a_directory_that_takes_no_files_is_an_error) {
  EXPECT_THAT(file_error([] { SwapFile("/proc/self", 1 << 20); }), HasSubstr("/proc/self"));
}

// Answers io_uring_setup with "not permitted", as containers do.
bool forbid_uring() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = 4, .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

void read_without_uring() {
  if (!forbid_uring()) _exit(2);
  const TempDirectory folder;
  const SwapFile file(folder.path(), 1 << 20);
  const std::unique_ptr<BlockIo> io = block_io(file.file(), 2);
  const std::unique_ptr<BlockIo> second = block_io(file.file(), 2);  // nothing is said of it
  _exit(io->name() == "threads" && second->name() == "threads" ? 0 : 1);
}

TEST(BlockIoDeathTest, where_uring_is_forbidden_threads_do_it_and_one_line_says_so) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(read_without_uring(), testing::ExitedWithCode(0),
              "io_uring is not to be had here \\(Operation not permitted\\): the tier 'disk' is read and written by 2 "
              "threads instead");
}

}  // namespace
}  // namespace trireme::swap_file_test
