// A thread that carries values between memory and a rank's file, one after the other, in blocks of which several are
// under way at a time. Every block has a checksum, which the reading compares.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/exec/disk/block_io.h"

namespace trireme {

// Where a value lies in the file, and the checksums of what was written there last.
struct DiskValue {
  std::string name;  // for errors
  int64_t offset = 0, bytes = 0;
  std::vector<uint64_t> sums = {};  // of each block; none before the first writing
};

struct DiskTransfer {
  bool stores = false;
  View value;                          // in the device's memory or the host's
  DiskValue* at = nullptr;             // of as many bytes
  std::span<std::byte> staging = {};   // of the host's memory, as blocks.h says
  const DeviceEvent* after = nullptr;  // that comes before the value is read or written; null: nothing does
};

class DiskLane {
 public:
  // `file` and `device` outlive it.
  DiskLane(int file, Device& device, const BlockIoMaker& make_io = block_io);
  DiskLane(const DiskLane&) = delete;
  DiskLane& operator=(const DiskLane&) = delete;
  ~DiskLane();  // what is not begun by then is left out

  std::string_view way() const { return io_->name(); }  // "io_uring"
  // So many transfers may be put in before the first of them is waited for; put() takes no memory then.
  void reserve(size_t transfers);
  // Returns its number. The transfer, and what it names, stays until it has been waited for. Throws as wait().
  uint64_t put(const DiskTransfer& transfer);
  // Returns when it has ended: what it stores has been written, what it loads has come. Throws what went wrong in it or
  // in one before, after which none is begun any more: kIo for the system's errors, kCorrupt for bytes that are not
  // those that were written.
  void wait(uint64_t number);

 private:
  void run();
  void carry(const DiskTransfer& transfer);
  class Blocks;

  std::unique_ptr<DeviceStream> copies_;  // of the lane's thread
  std::unique_ptr<BlockIo> io_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const DiskTransfer*> ring_;  // transfers done_ to put_ - 1, at their numbers modulo its size
  uint64_t put_ = 0, done_ = 0;
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace trireme
