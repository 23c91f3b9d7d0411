#include "trireme/exec/background/host_lane.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme {

HostLane::HostLane(Device& device, int threads, size_t works)
    : arrivals_(device.stream()),
      pool_(threads > 1 ? std::make_unique<ThreadPool>(threads) : nullptr),
      queue_([this](const HostWork& work) { carry_out(work); }) {
  queue_.reserve(works);
}

void HostLane::carry_out(const HostWork& work) {
  if (work.after != nullptr) {
    arrivals_->wait(*work.after);
    arrivals_->synchronize();
  }
  KernelArgs args = work.args;
  args.pool = pool_.get();
  try {
    work.kernel(args);
    if (work.made.data == nullptr) return;
    arrivals_->copy(work.made, work.copied);
    arrivals_->synchronize();
  } catch (Error& e) {
    e.note(*work.what + ", on the host");
    throw;
  }
}

BoundHostOp::BoundHostOp(const HostWork& work, Device& device, DeviceStream& compute, HostLane& lane)
    : work_(work), compute_(compute), lane_(lane), computed_(device.event()) {
  work_.after = computed_.get();
}

void BoundHostOp::start() {
  compute_.record(*computed_);
  number_ = lane_.put(work_);
}

void BoundHostOp::wait() {
  if (number_ == 0) return;
  lane_.wait(std::exchange(number_, 0));
  ended_ = std::chrono::steady_clock::now();
}

}  // namespace trireme
