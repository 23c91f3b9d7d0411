// A thread that moves values between memory and a rank's file, one after the other, in blocks of which several are in
// flight. When a value has no more blocks to start, the first blocks of the next value are started, so the disk is
// never idle between them. Every block has a checksum, which is compared on reading.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/base/work_queue.h"
#include "trireme/exec/disk/block_io.h"
#include "trireme/exec/disk/blocks.h"

namespace trireme {

// Where a value lies in the file, and the checksums of what was written there last.
struct DiskValue {
  // `cuts`: at which of its bytes, whole sectors, parts begin that are carried alone. No block has bytes of two.
  DiskValue(std::string value_name, int64_t at_offset, int64_t size, const std::vector<int64_t>& cuts = {},
            int64_t block_bytes = DiskBlocks().bytes);

  std::string name;  // for errors
  int64_t offset = 0, bytes = 0;
  std::vector<int64_t> blocks;                // where each begins, and the end of the last
  std::vector<std::optional<uint64_t>> sums;  // of each block; none before it is written first
};

struct DiskTransfer {
  bool stores = false;
  View value;                          // in the device's memory or the host's
  DiskValue* at = nullptr;             // of as many bytes, or more
  int64_t begin = 0;                   // at which of its bytes the value begins, a whole number of blocks
  std::span<std::byte> staging = {};   // of the host's memory, as blocks.h says
  const DeviceEvent* after = nullptr;  // that comes before the value is read or written; null: nothing does
};

class DiskLane {
 public:
  // `file` and `device` outlive it.
  DiskLane(int file, Device& device, const DiskBlocks& blocks = {}, const BlockIoMaker& make_io = block_io);
  ~DiskLane();
  std::string_view way() const;  // "io_uring"
  // So many transfers may be put in before the first of them is waited for; put() takes no memory then.
  void reserve(size_t transfers) { queue_.reserve(transfers); }
  // Returns its number. The transfer, and what it names, stays until it has been waited for. Throws as wait().
  uint64_t put(const DiskTransfer& transfer) { return queue_.put(transfer); }
  // Returns when it has ended: what it stores has been written, what it loads has come. Throws what went wrong in it or
  // in one before, after which none is begun any more: kIo for the system's errors, kCorrupt for bytes that are not
  // those that were written.
  void wait(uint64_t number) { queue_.wait(number); }

 private:
  class Blocks;
  class Flights;

  std::unique_ptr<Flights> flights_;  // of the lane's thread, which ends first
  WorkQueue<DiskTransfer> queue_;
};

}  // namespace trireme
