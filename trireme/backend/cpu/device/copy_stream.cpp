#include "trireme/backend/cpu/device/copy_stream.h"

#include <cstring>

#include "trireme/base/error.h"

namespace trireme::cpu {

CopyStream::~CopyStream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CopyStream::launch(KernelFn* /*kernel*/, const KernelArgs& /*args*/, const std::string& what) {
  fail(ErrorKind::kInternal, "a kernel is put into a stream of copies ({})", what);
}

void CopyStream::copy(const View& from, const View& to) {
  require(from.bytes() == to.bytes(), "{} bytes are copied to {}", from.bytes(), to.bytes());
  if (from.bytes() == 0 || from.data == to.data) return;
  {
    const std::lock_guard lock(mutex_);
    if (put_ - done_ == ring_.size()) {
      std::vector<Copy> larger(std::max<size_t>(16, 2 * ring_.size()));
      for (uint64_t i = done_; i < put_; ++i) larger[i % larger.size()] = ring_[i % ring_.size()];
      ring_ = std::move(larger);
    }
    ring_[put_ % ring_.size()] = {from.data, to.data, static_cast<size_t>(from.bytes())};
    ++put_;
  }
  changed_.notify_all();
}

void CopyStream::copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                             const Box& region) {
  synchronize();
  trireme::copy_region(from, from_box, to, to_box, region);
}

void CopyStream::record(DeviceEvent& event) {
  auto& here = static_cast<CpuEvent&>(event);
  const std::lock_guard lock(mutex_);
  here.stream = this;
  here.copies = put_;
}

void CopyStream::wait(const DeviceEvent& event) {
  const auto& there = static_cast<const CpuEvent&>(event);
  if (there.stream != nullptr && there.stream != this) there.stream->wait_for(there.copies);
}

void CopyStream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ == put_; });
}

void CopyStream::wait_for(uint64_t copies) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= copies; });
}

void CopyStream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || done_ < put_; });
    if (done_ == put_) return;
    const Copy next = ring_[done_ % ring_.size()];
    lock.unlock();
    std::memcpy(next.to, next.from, next.bytes);
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace trireme::cpu
