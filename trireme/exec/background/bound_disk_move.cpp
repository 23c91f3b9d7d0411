#include "trireme/exec/background/bound_disk_move.h"

#include <utility>

namespace trireme {

BoundDiskMove::BoundDiskMove(DiskTransfer transfer, Device& device, DeviceStream& compute, DiskLane& lane)
    : transfer_(std::move(transfer)), compute_(compute), lane_(lane), computed_(device.event()) {
  transfer_.after = computed_.get();
}

void BoundDiskMove::start() {
  compute_.record(*computed_);
  number_ = lane_.put(transfer_);
}

void BoundDiskMove::wait() {
  if (number_ == 0) return;
  lane_.wait(std::exchange(number_, 0));
  ended_ = std::chrono::steady_clock::now();
}

}  // namespace trireme
