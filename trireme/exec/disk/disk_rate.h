// How fast a rank's disk is written and read, measured with values that go through a disk lane like those of a plan.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct DiskRate {
  double written_bytes_per_s = 0, read_bytes_per_s = 0;
  std::string way;         // "io_uring"
  bool is_direct = false;  // past the system's cache; otherwise the rates are of that, too
};

// Of a file of so many bytes in `directory`, as SwapFile has it, which throws.
DiskRate measure_disk(const std::string& directory, int64_t bytes);

}  // namespace trireme
