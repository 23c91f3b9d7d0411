// A file in memory, for tests that write a file thousands of times.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme {

class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("test", MFD_CLOEXEC)), path_(fmt::format("/proc/self/fd/{}", file_)) {
    invariant(file_ >= 0 && ::fchmod(file_, 0600) == 0, "no file in memory can be made");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(file_); }

  const std::string& path() const { return path_; }
  // Replaces what it holds.
  void write(std::string_view bytes) const {
    const bool ok = ::ftruncate(file_, 0) == 0 &&
                    ::pwrite(file_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    invariant(ok, "a file in memory cannot be written");
  }

 private:
  int file_;
  std::string path_;
};

}  // namespace trireme
