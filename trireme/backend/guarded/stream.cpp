#include "trireme/backend/guarded/stream.h"

#include <chrono>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::guarded {

void Moment::come(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  has_come_ = true;
  error_ = std::move(error);
  changed_.notify_all();
}

std::exception_ptr Moment::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_come_; });
  return error_;
}

GuardedStream::GuardedStream(const GuardedMemory& memory, uint64_t seed)
    : memory_(memory), random_(static_cast<uint32_t>(seed)), thread_([this] { run(); }) {}

// What was put in is done first: it is somebody's to wait for.
GuardedStream::~GuardedStream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void GuardedStream::put_mark(Work mark) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(mark));
  changed_.notify_all();
}

void GuardedStream::put(Work work) {
  put_mark([this, work = std::move(work)] {
    if (error_) return;
    linger();
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

// One piece of work in four comes late, by as much as several others take.
void GuardedStream::linger() {
  if (random_() % 4 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
}

void GuardedStream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

void GuardedStream::launch(KernelFn* kernel, const KernelArgs& args, const std::string& what) {
  put([this, kernel, args, &what] {
    std::vector<View> in, out;
    for (const View& view : args.in) in.push_back(memory_.reached(view));
    for (const View& view : args.out) out.push_back(memory_.reached(view));
    const KernelArgs mine{.in = in,
                          .out = out,
                          .in_place = args.in_place,
                          .out_place = args.out_place,
                          .attrs = args.attrs,
                          .scratch = {memory_.reached(args.scratch.data()), args.scratch.size()},
                          .pool = args.pool,
                          .state = args.state,
                          .stream = this};
    try {
      kernel(mine);
    } catch (Error& e) {
      e.note(what);
      throw;
    }
  });
}

void GuardedStream::copy(const View& from, const View& to) {
  require(from.bytes() == to.bytes(), "{} bytes are copied to {}", from.bytes(), to.bytes());
  put([this, from, to] {
    if (from.bytes() == 0) return;
    std::memmove(memory_.reached(to).data, memory_.reached(from).data, static_cast<size_t>(from.bytes()));
  });
}

void GuardedStream::copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                                const Box& region) {
  put([this, from, from_box, to, to_box, region] {
    trireme::copy_region(memory_.reached(from), from_box, memory_.reached(to), to_box, region);
  });
}

void GuardedStream::record(DeviceEvent& event) {
  auto moment = std::make_shared<Moment>();
  static_cast<GuardedEvent&>(event).moment = moment;
  put_mark([this, moment] { moment->come(error_); });
}

void GuardedStream::wait(const DeviceEvent& event) {
  const std::shared_ptr<Moment> moment = static_cast<const GuardedEvent&>(event).moment;
  if (!moment) return;
  put_mark([this, moment] {
    const std::exception_ptr error = moment->wait();
    if (error && !error_) error_ = error;
  });
}

void GuardedStream::synchronize() {
  std::exception_ptr error;
  Moment done;
  put_mark([&] {
    error = std::exchange(error_, nullptr);
    done.come(nullptr);
  });
  done.wait();
  if (error) std::rethrow_exception(error);
}

}  // namespace trireme::guarded
