// How what lies on the disk is read and written: in blocks, each with a checksum, by way of staging in the host's
// memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme {

// Direct reads and writes begin and end at multiples of this, in the file and in memory.
inline constexpr int64_t kSectorBytes = 4096;
// Large enough that a disk is read at its full rate with a few of them under way.
inline constexpr int64_t kBlockBytes = 512 << 10;
inline constexpr int64_t kBlocksUnderWay = 4;

// A value's bytes in the file: whole sectors.
inline int64_t bytes_on_disk(int64_t bytes) {
  return (bytes + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
}
inline int64_t blocks_of(int64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes;
}
// Of a move that a value of so many bytes makes, wherever it begins.
inline int64_t staged_by_disk(int64_t bytes) {
  return std::min(bytes_on_disk(bytes), kBlocksUnderWay * kBlockBytes) + kSectorBytes;
}

}  // namespace trireme
