// The device guarded, for tests of what uses devices: the kernels of cpu in memory that the host cannot touch, in
// streams that run on their own. guarded:SEED draws other delays.
#include <atomic>
#include <charconv>

#include "trireme/backend/guarded/stream.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

class GuardedDevice : public Device {
 public:
  explicit GuardedDevice(uint64_t seed) : seed_(seed) {}

  const std::string& name() const override {
    static const std::string kName = "guarded";
    return kName;
  }
  KernelChoice choose(const KernelQuery& query) const override { return cpu_device().choose(query); }
  std::string tuned_as() const override { return cpu_device().tuned_as(); }
  std::string work_to_measure(const KernelQuery& query) const override { return cpu_device().work_to_measure(query); }
  std::string quickest_way(const KernelQuery& query, std::span<const Cores> others) const override {
    return cpu_device().quickest_way(query, others);
  }
  KernelFn* kernel(const OpDef& op, std::string_view name) const override { return cpu_device().kernel(op, name); }
  std::string bits(Numerics numerics) const override { return cpu_device().bits(numerics); }
  std::string processor() const override { return cpu_device().processor(); }
  std::string why_no_quicker(DType dtype) const override { return cpu_device().why_no_quicker(dtype); }
  bool fuses_products(DType dtype) const override { return cpu_device().fuses_products(dtype); }
  std::optional<Peak> measure_peak(ThreadPool& pool, const PeakOptions& options) const override {
    return cpu_device().measure_peak(pool, options);
  }

  Memory memory() const override { return Memory::kDevice; }
  bool sends_in_place() const override { return false; }
  int64_t memory_bytes() const override { return 0; }
  int64_t alignment() const override { return cpu_device().alignment(); }
  DeviceMemory allocate(int64_t bytes) override { return memory_.allocate(bytes); }
  std::unique_ptr<DeviceStream> stream() override {
    constexpr uint64_t kApart = 7919;  // the streams of one device draw delays of their own
    return std::make_unique<guarded::GuardedStream>(memory_, seed_ + kApart * ++streams_);
  }
  std::unique_ptr<DeviceEvent> event() override { return std::make_unique<guarded::GuardedEvent>(); }

 private:
  uint64_t seed_;
  std::atomic<uint64_t> streams_ = 0;
  guarded::GuardedMemory memory_;
};

}  // namespace

std::shared_ptr<Device> make_guarded(std::string_view told) {
  uint64_t seed = 1;
  const char* const end = told.data() + told.size();
  const bool is_number = told.empty() || std::from_chars(told.data(), end, seed).ptr == end;
  require(is_number,
          "the device 'guarded' does not take '{}'; after the colon stands the seed of its delays, as in guarded:7",
          told);
  return std::make_shared<GuardedDevice>(seed);
}

}  // namespace trireme
