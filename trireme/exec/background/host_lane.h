// A thread that runs a rank's ops on the host, one after the other, beside the kernels of the device. It has as many
// compute threads of its own as the rank has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/backend/device.h"
#include "trireme/base/thread_pool.h"
#include "trireme/base/work_queue.h"
#include "trireme/exec/background/background.h"

namespace trireme {

// One call of a kernel of the device cpu, on the host's memory, and a copy to the device of what it has made.
struct HostWork {
  KernelFn* kernel = nullptr;
  KernelArgs args;                     // the pool is the lane's
  const std::string* what = nullptr;   // "in matmul at 'h.0'", for errors
  const DeviceEvent* after = nullptr;  // that comes before the kernel reads or writes; null: nothing does
  View made = {}, copied = {};         // from, to, when the kernel has ended; no bytes: nothing is copied
};

class HostLane {
 public:
  // `device` outlives it. `works`: the most that are put in before the first of them is waited for.
  HostLane(Device& device, int threads, size_t works);

  // Returns its number. The work, and what it names, stays until it has been waited for. Throws as wait().
  uint64_t put(const HostWork& work) { return queue_.put(work); }
  // Returns when it has ended. Throws what went wrong in it or in one before, after which none is begun any more.
  void wait(uint64_t number) { queue_.wait(number); }

 private:
  void carry_out(const HostWork& work);

  std::unique_ptr<DeviceStream> arrivals_;  // of the lane's thread: where it waits for the device
  std::unique_ptr<ThreadPool> pool_;        // null: one thread, the lane's
  WorkQueue<HostWork> queue_;
};

// One op of a plan that runs on the host, bound to its memory there. It comes after the device's work before it, and
// the caller's thread waits for its end.
class BoundHostOp : public Background {
 public:
  BoundHostOp(const HostWork& work, Device& device, DeviceStream& compute, HostLane& lane);

  void start() override;
  void wait() override;
  bool is_under_way() const override { return number_ > 0; }
  // When this rank went on after it, at the latest.
  std::chrono::steady_clock::time_point ended() const override { return ended_; }

 private:
  HostWork work_;
  DeviceStream& compute_;
  HostLane& lane_;
  std::unique_ptr<DeviceEvent> computed_;
  std::chrono::steady_clock::time_point ended_;
  uint64_t number_ = 0;  // of the lane; 0: not under way
};

}  // namespace trireme
