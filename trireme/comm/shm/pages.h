// PrivatePages: zeroed memory of one rank, for transports that cannot share it with peers.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

namespace trireme::comm {

class PrivatePages {
 public:
  PrivatePages() = default;
  PrivatePages(const PrivatePages&) = delete;
  PrivatePages& operator=(const PrivatePages&) = delete;
  ~PrivatePages();

  std::span<std::byte> add(size_t bytes);  // from any thread; throws kIo when there is no memory

 private:
  std::mutex mutex_;
  std::vector<std::span<std::byte>> blocks_;
};

}  // namespace trireme::comm
