#include "trireme/comm/shm/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::comm {

PrivatePages::~PrivatePages() {
  for (const std::span<std::byte> block : blocks_) munmap(block.data(), block.size());
}

std::span<std::byte> PrivatePages::add(size_t bytes) {
  if (bytes == 0) return {};
  void* const start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    fail(ErrorKind::kIo, "allocate: cannot get {} bytes: {}", bytes, std::strerror(errno));
  }
  const std::lock_guard lock(mutex_);
  return blocks_.emplace_back(static_cast<std::byte*>(start), bytes);
}

}  // namespace trireme::comm
