// Streams of the device guarded: each is a thread of its own, and takes its time before one piece of work or another,
// drawn from a seed. Work that no event orders runs in a different order sooner or later.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "trireme/backend/guarded/memory.h"

namespace trireme::guarded {

// The point of a stream where an event was recorded.
class Moment {
 public:
  void come(std::exception_ptr error);  // with what has gone wrong in the stream by then
  std::exception_ptr wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_come_ = false;
  std::exception_ptr error_;
};

class GuardedEvent : public DeviceEvent {
 public:
  std::shared_ptr<Moment> moment;  // null: never recorded, and has come
};

class GuardedStream : public DeviceStream {
 public:
  GuardedStream(const GuardedMemory& memory, uint64_t seed);
  ~GuardedStream() override;
  GuardedStream(const GuardedStream&) = delete;
  GuardedStream& operator=(const GuardedStream&) = delete;

  void launch(KernelFn* kernel, const KernelArgs& args, const std::string& what) override;
  void copy(const View& from, const View& to) override;
  void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                   const Box& region) override;
  void record(DeviceEvent& event) override;
  void wait(const DeviceEvent& event) override;
  void synchronize() override;

 private:
  using Work = std::function<void()>;
  void put(Work work);  // left out after an error
  void put_mark(Work mark);
  void run();
  void linger();

  const GuardedMemory& memory_;
  std::minstd_rand random_;   // of the thread
  std::exception_ptr error_;  // of the thread: the first, until synchronize()
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace trireme::guarded
