// One move of a plan between tiers (op/move.h), bound to the bytes that it reads and writes. Events order the copy
// after the kernels before it, and before the kernels of the action that waits for it.
#pragma once

#include <memory>

#include "trireme/backend/device.h"
#include "trireme/exec/background/background.h"

namespace trireme {

class BoundMove : public Background {
 public:
  // `compute` is the stream of kernels, `copies` that of the move's lane.
  BoundMove(const View& from, const View& to, Device& device, DeviceStream& compute, DeviceStream& copies);

  void start() override;
  void wait() override;
  bool is_under_way() const override { return started_; }
  // When this rank went on after it, at the latest: a device's copies are not timed.
  std::chrono::steady_clock::time_point ended() const override { return ended_; }

 private:
  View from_, to_;
  DeviceStream& compute_;
  DeviceStream& copies_;
  std::unique_ptr<DeviceEvent> computed_, arrived_;
  std::chrono::steady_clock::time_point ended_;
  bool started_ = false;
};

}  // namespace trireme
