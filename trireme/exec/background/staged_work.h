// StagedWork: background work for a device that cannot send from its own memory. Before the work starts, operands are
// copied to staging on the host, at the front of the action's scratch; what arrived is copied back when it is waited
// for. Events order the copies after the kernels before them and before the kernels after them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/exec/background/background.h"

namespace trireme {

// Operands and results of an action, with a place on the host for each that lies in device memory. What lies side by
// side there does so here.
struct Staging {
  std::vector<View> in, out;                   // where the work finds them
  std::span<std::byte> scratch;                // of the work itself
  std::vector<std::pair<View, View>> outward;  // from the device to the host, before the work
  std::vector<std::pair<View, View>> inward;   // from the host to the device, after it
};
// The last `work_bytes` of the scratch are the work's own.
Staging stage(std::span<const View> in, std::span<const View> out, std::span<std::byte> scratch, int64_t work_bytes);

// The streams of an executor for its copies, beside that of its kernels.
struct CopyStreams {
  DeviceStream& compute;
  DeviceStream& outward;
  DeviceStream& inward;
};

class StagedWork : public Background {
 public:
  // `work` is bound to the views of `staging`.
  StagedWork(std::unique_ptr<Background> work, Staging staging, Device& device, const CopyStreams& streams);

  void prepare() override;
  void start() override;
  void wait() override;
  bool is_under_way() const override { return started_; }
  std::chrono::steady_clock::time_point ended() const override { return work_->ended(); }

 private:
  std::unique_ptr<Background> work_;
  Staging staging_;
  CopyStreams streams_;
  std::unique_ptr<DeviceEvent> computed_;  // all kernels before the work
  std::unique_ptr<DeviceEvent> arrived_;   // its results in device memory
  bool started_ = false;
};

}  // namespace trireme
