// Threads of this process that wait for a disk. The kernel shows some of these waits (state D), but a thread that waits
// for io_uring, for a file system that a process serves (FUSE), or for such a thread, looks asleep. Whoever watches the
// process reads here that it waits.
#pragma once

#include <atomic>

namespace trireme {

// One more thread waits while this lives.
class DiskWait {
 public:
  DiskWait();
  ~DiskWait();
  DiskWait(const DiskWait&) = delete;
  DiskWait& operator=(const DiskWait&) = delete;

 private:
  std::atomic<int>& count_;
};

// From now on they are counted in `there`, memory that another process may see and that stays.
void count_disk_waits(std::atomic<int>& there);

}  // namespace trireme
