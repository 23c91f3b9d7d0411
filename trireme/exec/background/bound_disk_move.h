// One move of a plan to or from the disk, bound to the value in memory and to its place in the file.
#pragma once

#include <memory>

#include "trireme/exec/background/background.h"
#include "trireme/exec/disk/disk_lane.h"

namespace trireme {

class BoundDiskMove : public Background {
 public:
  // `transfer` is without its event. `compute` is the stream of kernels: the transfer comes after those before it, and
  // the caller's thread waits for its end.
  BoundDiskMove(DiskTransfer transfer, Device& device, DeviceStream& compute, DiskLane& lane);

  void start() override;
  void wait() override;
  bool is_under_way() const override { return number_ > 0; }
  // When this rank went on after it, at the latest.
  std::chrono::steady_clock::time_point ended() const override { return ended_; }

 private:
  DiskTransfer transfer_;
  DeviceStream& compute_;
  DiskLane& lane_;
  std::unique_ptr<DeviceEvent> computed_;
  std::chrono::steady_clock::time_point ended_;
  uint64_t number_ = 0;  // of the lane; 0: not under way
};

}  // namespace trireme
