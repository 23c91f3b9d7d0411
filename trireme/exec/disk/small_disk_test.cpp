// The tier 'disk' on a real file system of a few MB, which is mounted where that is allowed.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/disk/disk_lane.h"
#include "trireme/exec/disk/swap_file.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::small_disk_test {
namespace {

constexpr int64_t kMiB = 1 << 20;

bool write_text(const char* path, const std::string& text) {
  const int file = ::open(path, O_WRONLY);
  const bool done = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) ::close(file);
  return done;
}

// Mounts of its own, as root, or as root of a namespace in which it is that.
bool take_own_mounts() {
  const auto user = ::getuid(), group = ::getgid();
  if (::unshare(CLONE_NEWNS) == 0) return true;
  return ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_text("/proc/self/setgroups", "deny") &&
         write_text("/proc/self/uid_map", fmt::format("0 {} 1", user)) &&
         write_text("/proc/self/gid_map", fmt::format("0 {} 1", group));
}

// A file system of 4 MiB that this process alone sees; it goes with the process.
bool mount_small_disk(const std::string& folder) {
  if (!take_own_mounts()) return false;
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=4m") == 0;
}

bool may_mount() {
  const TempDirectory folder;
  const pid_t child = ::fork();
  if (child == 0) _exit(mount_small_disk(folder.path()) ? 0 : 1);
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Runs `what` on such a disk, says its error, and ends the process.
template <class What>
void on_small_disk(What&& what) {
  std::string folder;
  {
    const TempDirectory made;
    folder = made.path();
  }
  if (::mkdir(folder.c_str(), 0700) != 0 || !mount_small_disk(folder)) _exit(9);
  int code = 0;
  try {
    code = what(folder);
  } catch (const Error& e) {
    std::fputs(e.text().c_str(), stderr);
    code = 2;
  }
  if (code != 9 && !list_directory(folder).empty()) std::fputs("something is left there", stderr);
  ::umount2(folder.c_str(), MNT_DETACH);
  ::rmdir(folder.c_str());
  _exit(code);
}

// All that the disk has, taken by others.
void fill_up(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR, 0600);  // stays open: its bytes are in use
  const std::vector<char> bytes(64 << 10, 'x');
  while (::write(file, bytes.data(), bytes.size()) > 0) {
  }
}

int take_more_than_there_is(const std::string& folder) {
  SwapFile(folder, 8 * kMiB);
  return 0;
}

int take_what_others_took_before(const std::string& folder) {
  fill_up(folder);
  SwapFile(folder, 2 * kMiB);
  return 0;
}

// The file has its bytes from the start, so that a disk that is full later is none of its concern.
int store_when_others_have_taken_the_rest(const std::string& folder) {
  const int64_t bytes = 2 * kMiB;
  const SwapFile file(folder, bytes);
  DiskLane lane(file.file(), cpu_device(), {});
  lane.reserve(1);
  const HostTensor value({DType::kU8, {bytes}}), come(value.type());
  const HostTensor staging({DType::kU8, {staged_by_disk(bytes, {})}});
  DiskValue at("w", 0, bytes);
  for (int step = 0; step < 3; ++step) {
    for (std::byte& each : value.view().raw()) each = static_cast<std::byte>(step + 1);
    lane.wait(lane.put(
        DiskTransfer{.stores = true, .value = value.view(), .at = &at, .begin = 0, .staging = staging.view().raw()}));
    if (step == 0) fill_up(folder);
    lane.wait(lane.put(
        DiskTransfer{.stores = false, .value = come.view(), .at = &at, .begin = 0, .staging = staging.view().raw()}));
    if (come.view().raw().back() != value.view().raw().back()) return 1;
  }
  return 0;
}

class SmallDiskDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (!may_mount()) GTEST_SKIP() << "no file system may be mounted here";
  }
};

TEST_F(SmallDiskDeathTest, that_is_too_small_is_refused_before_the_first_step) {
  EXPECT_EXIT(on_small_disk(take_more_than_there_is), testing::ExitedWithCode(2),
              "left; free space there, name another directory with --disk");
}

TEST_F(SmallDiskDeathTest, that_is_full_is_refused_before_the_first_step) {
  EXPECT_EXIT(on_small_disk(take_what_others_took_before), testing::ExitedWithCode(2),
              "left; free space there, name another directory with --disk");
}

TEST_F(SmallDiskDeathTest, that_fills_up_in_the_middle_loses_nothing) {
  EXPECT_EXIT(on_small_disk(store_when_others_have_taken_the_rest), testing::ExitedWithCode(0),
              testing::Not(testing::HasSubstr("something is left there")));
}

}  // namespace
}  // namespace trireme::small_disk_test
