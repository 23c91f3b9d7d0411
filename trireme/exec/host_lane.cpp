#include "trireme/exec/host_lane.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme {

HostLane::HostLane(Device& device, int threads, size_t works)
    : arrivals_(device.stream()), pool_(threads > 1 ? std::make_unique<ThreadPool>(threads) : nullptr), ring_(works) {
  thread_ = std::thread([this] { run(); });
}

HostLane::~HostLane() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t HostLane::put(const HostWork& work) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    invariant(put_ - done_ < ring_.size(), "{} ops of the host are under way, and there is room for {}", put_ - done_,
              ring_.size());
    ring_[put_ % ring_.size()] = &work;
    number = ++put_;
  }
  changed_.notify_all();
  return number;
}

void HostLane::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number || error_; });
  if (error_) std::rethrow_exception(error_);
}

void HostLane::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || (done_ < put_ && !error_); });
    if (ends_) return;
    const HostWork& next = *ring_[done_ % ring_.size()];
    lock.unlock();
    std::exception_ptr error;
    try {
      carry_out(next);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
    } else {
      ++done_;
    }
    changed_.notify_all();
  }
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
