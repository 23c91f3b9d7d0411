// A stream of the device cpu that copies while kernels run: a thread of its own. It allocates no memory during a step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/backend/device.h"

namespace trireme::cpu {

class CopyStream;

// Recorded in a CopyStream: the number of copies that were put in before. Recorded elsewhere on the device, all is done
// already.
class CpuEvent : public DeviceEvent {
 public:
  CopyStream* stream = nullptr;
  uint64_t copies = 0;
};

class CopyStream : public DeviceStream {
 public:
  CopyStream() : thread_([this] { run(); }) {}
  ~CopyStream() override;
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  [[noreturn]] void launch(KernelFn* kernel, const KernelArgs& args, const std::string& what) override;
  void copy(const View& from, const View& to) override;
  void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                   const Box& region) override;
  void record(DeviceEvent& event) override;
  // The caller waits for what other streams have to do first.
  void wait(const DeviceEvent& event) override;
  void synchronize() override;

  void wait_for(uint64_t copies);  // returns when so many are done

 private:
  struct Copy {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    size_t bytes = 0;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Copy> ring_;  // copies done_ to put_ - 1, at their numbers modulo its size
  uint64_t put_ = 0, done_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace trireme::cpu
