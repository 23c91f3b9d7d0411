// Threads of this process that wait for a disk. The kernel shows that of some (state D), but not of those that wait for
// io_uring or for such a thread, which sleep as if nothing went on; whoever watches the process reads it here.
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
