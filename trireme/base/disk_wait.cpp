#include "trireme/base/disk_wait.h"

namespace trireme {
namespace {

std::atomic<int> unseen_disk_waits{0};
std::atomic<std::atomic<int>*> disk_waits{&unseen_disk_waits};

}  // namespace

DiskWait::DiskWait() : count_(*disk_waits.load()) {
  count_.fetch_add(1);
}

DiskWait::~DiskWait() {
  count_.fetch_sub(1);
}

void count_disk_waits(std::atomic<int>& there) {
  disk_waits.store(&there);
}

}  // namespace trireme
