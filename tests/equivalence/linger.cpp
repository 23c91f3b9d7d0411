#include "tests/equivalence/linger.h"

#include <atomic>
#include <thread>

#include "tests/equivalence/draw.h"

namespace trireme::equivalence {
namespace {

class LingeringStream : public DeviceStream {
 public:
  LingeringStream(uint32_t seed, std::unique_ptr<DeviceStream> stream)
      : rest_(drawn_rests(seed)), stream_(std::move(stream)) {}

  void launch(KernelFn* kernel, const KernelArgs& args, const std::string& what) override {
    std::this_thread::sleep_for(rest_());
    stream_->launch(kernel, args, what);
  }
  void copy(const View& from, const View& to) override {
    std::this_thread::sleep_for(rest_());
    stream_->copy(from, to);
  }
  void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                   const Box& region) override {
    std::this_thread::sleep_for(rest_());
    stream_->copy_region(from, from_box, to, to_box, region);
  }
  void record(DeviceEvent& event) override { stream_->record(event); }
  void wait(const DeviceEvent& event) override { stream_->wait(event); }
  void synchronize() override { stream_->synchronize(); }

 private:
  std::function<std::chrono::microseconds()> rest_;
  std::unique_ptr<DeviceStream> stream_;
};

class LingeringCpu : public Device {
 public:
  explicit LingeringCpu(uint32_t seed) : seed_(seed) {}

  const std::string& name() const override { return cpu_device().name(); }
  KernelChoice choose(const KernelQuery& query) const override { return cpu_device().choose(query); }
  KernelFn* kernel(const OpDef& op, std::string_view name) const override { return cpu_device().kernel(op, name); }
  std::string bits(Numerics numerics) const override { return cpu_device().bits(numerics); }
  Memory memory() const override { return cpu_device().memory(); }
  bool sends_in_place() const override { return cpu_device().sends_in_place(); }
  int64_t memory_bytes() const override { return cpu_device().memory_bytes(); }
  int64_t alignment() const override { return cpu_device().alignment(); }
  DeviceMemory allocate(int64_t bytes) override { return cpu_device().allocate(bytes); }
  std::unique_ptr<DeviceStream> stream() override { return lingering(cpu_device().stream()); }
  std::unique_ptr<DeviceStream> copy_stream() override { return lingering(cpu_device().copy_stream()); }
  std::unique_ptr<DeviceEvent> event() override { return cpu_device().event(); }

 private:
  std::unique_ptr<DeviceStream> lingering(std::unique_ptr<DeviceStream> stream) {
    return std::make_unique<LingeringStream>(seed_ + 31 * ++streams_, std::move(stream));
  }

  uint32_t seed_;
  std::atomic<uint32_t> streams_ = 0;  // each rank makes its own
};

}  // namespace

std::shared_ptr<Device> lingering_cpu(uint32_t seed) {
  return std::make_shared<LingeringCpu>(seed);
}

std::function<std::chrono::microseconds()> drawn_rests(uint32_t seed) {
  constexpr int kPercent = 6;
  constexpr int64_t kMostMicroseconds = 400;
  return [draw = Draw(seed)]() mutable {
    return std::chrono::microseconds(draw.chance(kPercent) ? draw.below(kMostMicroseconds) : 0);
  };
}

}  // namespace trireme::equivalence
