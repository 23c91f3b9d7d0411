// How values on the disk are read and written: in blocks, each with a checksum, through staging in the host's memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme {

// Direct reads and writes begin and end at multiples of this, in the file and in memory.
inline constexpr int64_t kSectorBytes = 4096;
// A block is written or read at once, several of them at a time. With these a disk goes at its full rate.
struct DiskBlocks {
  int64_t bytes = 512 << 10;  // of a block: whole sectors
  int64_t under_way = 4;
  friend bool operator==(const DiskBlocks&, const DiskBlocks&) = default;
};
inline constexpr int64_t kMostBlocksUnderWay = 64;

// A value's bytes in the file: whole sectors.
inline int64_t bytes_on_disk(int64_t bytes) {
  return (bytes + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
}
// Of a move that a value of so many bytes makes, wherever it begins.
inline int64_t staged_by_disk(int64_t bytes, const DiskBlocks& blocks) {
  return std::min(bytes_on_disk(bytes), blocks.under_way * blocks.bytes) + kSectorBytes;
}

}  // namespace trireme
