// One move of a plan to the device that changes the element type of its value on the way, bound to the bytes that it
// reads and writes. A thread of the lane casts on the host: directly into the result if kernels work in the host's
// memory, otherwise into staging, which is then copied to the device.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "trireme/exec/background/host_lane.h"
#include "trireme/op/move.h"

namespace trireme {

class BoundCastMove : public Background {
 public:
  // `staging` has as many bytes as `to`, or none where kernels work in the host's memory. `what`, the device, the
  // stream of kernels and the lane outlive it.
  BoundCastMove(const View& from, const View& to, std::span<std::byte> staging, KernelFn* cast, const std::string& what,
                Device& device, DeviceStream& compute, HostLane& lane);

  void start() override { op_.start(); }
  void wait() override { op_.wait(); }
  bool is_under_way() const override { return op_.is_under_way(); }
  std::chrono::steady_clock::time_point ended() const override { return op_.ended(); }

 private:
  View from_, to_, made_;
  Attrs attrs_;  // of the cast
  std::shared_ptr<void> state_;
  BoundHostOp op_;
};

}  // namespace trireme
