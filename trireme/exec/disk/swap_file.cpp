#include "trireme/exec/disk/swap_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/exec/disk/blocks.h"

namespace trireme {
namespace {

std::string directory_of(std::string asked) {
  if (!asked.empty()) return asked;
  std::error_code code;
  const std::string out = std::filesystem::temp_directory_path(code).string();
  if (code) fail(ErrorKind::kIo, "there is no directory for temporary files: {}; name one with --disk", code.message());
  return out;
}

[[noreturn]] void fail_swap_file(int64_t bytes, const std::string& directory, int code) {
  fail(ErrorKind::kIo, "cannot make the tier 'disk', a file of {} bytes in '{}': {}", bytes, directory,
       code == ENOENT || code == EPERM ? "no file can be made there; name a directory of a disk with --disk"
                                       : why_not_written(code));
}

// A file that never has a name, or, on file systems that do not know that, has one for a moment.
int open_without_name(const std::string& directory) {
  const int file = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
  std::string name = join_path(directory, "trireme-disk-XXXXXX");
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

bool lies_in_memory(int file) {
  struct statfs info {};
  return ::fstatfs(file, &info) == 0 && info.f_type == TMPFS_MAGIC;
}

// Some file systems take the flag and refuse the first read.
bool reads_directly(int file) {
  const std::unique_ptr<void, void (*)(void*)> sector(std::aligned_alloc(kSectorBytes, kSectorBytes), &std::free);
  return sector && ::pread(file, sector.get(), kSectorBytes, 0) == kSectorBytes;
}

}  // namespace

SwapFile::SwapFile(std::string directory, int64_t bytes)
    : directory_(directory_of(std::move(directory))), bytes_(bytes_on_disk(bytes)) {
  disk().make_directory(directory_);
  file_ = open_without_name(directory_);
  if (file_ < 0) fail_swap_file(bytes_, directory_, errno);
  try {
    allocate();
  } catch (...) {
    ::close(file_);
    throw;
  }
  go_past_the_cache();
  if (lies_in_memory(file_))
    TRIREME_LOG(kWarn, "exec", "the tier 'disk' is in '{}', which is memory itself (tmpfs); name a disk's directory",
                directory_);
  TRIREME_LOG(kInfo, "exec", "the tier 'disk' is a file of {} bytes in '{}'{}", bytes_, directory_,
              is_direct_ ? "" : ", by way of the system's cache");
}

SwapFile::~SwapFile() {
  ::close(file_);
}

void SwapFile::allocate() {
  const int64_t left = free_bytes(directory_);
  if (left < bytes_)
    fail(ErrorKind::kIo,
         "the tier 'disk' takes {} bytes of '{}', which has {} left; free space there, name another directory with "
         "--disk, or leave more in memory (parallel.home, parallel.keep)",
         bytes_, directory_, left);
  int code = EINTR;  // which a signal makes of a long call
  while (code == EINTR) code = ::posix_fallocate(file_, 0, std::max<int64_t>(bytes_, kSectorBytes));
  if (code != 0) fail_swap_file(bytes_, directory_, code);
}

void SwapFile::go_past_the_cache() {
  const int flags = ::fcntl(file_, F_GETFL);
  if (flags < 0 || ::fcntl(file_, F_SETFL, flags | O_DIRECT) != 0) return;
  is_direct_ = reads_directly(file_);
  if (!is_direct_) ::fcntl(file_, F_SETFL, flags);
}

}  // namespace trireme
