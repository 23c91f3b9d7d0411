#include "trireme/train/loop/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

constexpr size_t kMostOfOwner = 1000;  // bytes of the file that are read and shown

std::string lock_path(const std::string& folder) {
  return join_path(folder, "job.lock");
}

std::string this_host() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string date_and_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[64] = "";
  localtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

// Who has the lock, or had it and did not end in order: the host, and a line that says all. Empty when nobody wrote it.
std::pair<std::string, std::string> owner_of(int file) {
  char bytes[kMostOfOwner];
  const ssize_t got = pread(file, bytes, sizeof bytes, 0);
  std::string text(bytes, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  const size_t line = std::min(text.find('\n'), text.size());
  std::string host = text.substr(0, line);
  std::string story = text.substr(std::min(line + 1, text.size()));
  story.resize(std::min(story.find('\n'), story.size()));
  std::ranges::replace_if(
      story, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, '?');
  return {std::move(host), std::move(story)};
}

[[noreturn]] void fail_taken(int file, const std::string& folder) {
  const std::string who = owner_of(file).second;
  close(file);
  fail(ErrorKind::kInvalidArgument,
       "another job is writing to '{}' ({}); name another folder for this one (--out), or wait until that one has "
       "ended",
       folder, who.empty() ? "it has not written who it is" : who);
}

// 0, or why the disk has no lock to give. Another job's ends in an error.
int lock(int file, const std::string& folder) {
  int status = 0;
  do {
    status = flock(file, LOCK_EX | LOCK_NB);
  } while (status != 0 && errno == EINTR);
  if (status == 0) return 0;
  if (errno == EWOULDBLOCK || errno == EACCES) fail_taken(file, folder);
  return errno;
}

}  // namespace

RunLock::RunLock(const std::string& folder, const std::string& command) {
  disk().make_directory(folder);
  const std::string path = lock_path(folder);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0)
    fail(ErrorKind::kIo, "cannot write '{}' ({}); name a folder of your own with --out", path, std::strerror(errno));
  if (const int error = lock(file, folder); error != 0) {
    TRIREME_LOG(kWarn, "train",
                "the file system of '{}' has no locks ({}), so a second job there is not noticed; start one at a time",
                folder, std::strerror(error));
  }
  if (const auto [host, story] = owner_of(file); !host.empty() && host != this_host()) {
    TRIREME_LOG(kWarn, "train",
                "a job of another host did not end cleanly in '{}', or still runs there and this disk's locks do not "
                "reach it: {}",
                folder, story);
  }
  const std::string host = this_host();
  const std::string text =
      fmt::format("{}\n{}, process {} on {}, since {}\n", host, command, getpid(), host, date_and_time());
  if (ftruncate(file, 0) != 0 || pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      fsync(file) != 0) {  // other hosts read it
    const int error = errno;
    close(file);
    fail(ErrorKind::kIo, "cannot write '{}' ({})", path, std::strerror(error));
  }
  file_ = file;
}

RunLock::RunLock(RunLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

// The file stays: were it removed, one job could lock the removed file and another a new one.
RunLock::~RunLock() {
  if (file_ < 0) return;
  (void)!ftruncate(file_, 0);
  close(file_);
}

std::string RunLock::text_in(const std::string& folder) {
  const int file = open(lock_path(folder).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  char bytes[kMostOfOwner];
  const ssize_t got = pread(file, bytes, sizeof bytes, 0);
  close(file);
  return {bytes, static_cast<size_t>(std::max<ssize_t>(got, 0))};
}

void RunLock::check(const std::string& folder) {
  const int file = open(lock_path(folder).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;  // nobody has locked it yet; what else is wrong shows when it is written to
  lock(file, folder);
  close(file);
}

}  // namespace trireme
