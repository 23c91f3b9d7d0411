#include "trireme/exec/disk/block_io.h"

#include <atomic>
#include <cstring>

#include "trireme/base/log.h"

namespace trireme {

std::unique_ptr<BlockIo> block_io(int file, int most) {
  int code = 0;
  if (std::unique_ptr<BlockIo> out = io_by_uring(file, most, code)) return out;
  static std::atomic<bool> is_said = false;
  if (!is_said.exchange(true)) {
    TRIREME_LOG(kWarn, "exec",
                "io_uring is not to be had here ({}): the tier 'disk' is read and written by {} threads instead",
                std::strerror(code), most);
  }
  return io_by_threads(file, most);
}

}  // namespace trireme
