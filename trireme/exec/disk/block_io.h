// Reads and writes of a file, several of them in flight, by io_uring or, if the system does not allow that, by threads.
// Only one thread at a time may start and end them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace trireme {

struct BlockRequest {
  bool writes = false;
  int64_t offset = 0;  // in the file
  std::span<std::byte> bytes;
  uint64_t tag = 0;  // of who asks
};

struct BlockEnd {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes that were read or written, which may be fewer; or minus the system's error code
};

class BlockIo {
 public:
  // Nothing is under way: what was begun was waited for.
  virtual ~BlockIo() = default;
  virtual std::string_view name() const = 0;            // "io_uring"
  virtual void begin(const BlockRequest& request) = 0;  // at most as many are under way as it was made for
  virtual BlockEnd end() = 0;                           // waits for one of them
};

// For a file's descriptor, which outlives it, and so many requests at a time.
using BlockIoMaker = std::function<std::unique_ptr<BlockIo>(int file, int most)>;

// Null where the system does not allow it; the system's error code says why.
std::unique_ptr<BlockIo> io_by_uring(int file, int most, int& code);
std::unique_ptr<BlockIo> io_by_threads(int file, int most);
// By io_uring, else, with one line in the log, by threads.
std::unique_ptr<BlockIo> block_io(int file, int most);

}  // namespace trireme
