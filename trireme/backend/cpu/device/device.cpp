// The device cpu: work is done where it is put in, by the calling thread and the pool that KernelArgs names; copies
// that run beside it, by threads of their own.
#include "trireme/backend/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "trireme/backend/cpu/device/copy_stream.h"
#include "trireme/backend/cpu/device/cpu_model.h"
#include "trireme/backend/cpu/device/cpu_peak.h"
#include "trireme/backend/cpu/isa/isa.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/gemm.h"
#include "trireme/base/error.h"
#include "trireme/version.h"

namespace trireme {
namespace {

class CpuStream : public DeviceStream {
 public:
  void launch(KernelFn* kernel, const KernelArgs& args, const std::string& /*what*/) override {
    KernelArgs mine = args;
    mine.stream = this;
    kernel(mine);
  }
  void copy(const View& from, const View& to) override {
    if (from.data != to.data) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
  }
  void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                   const Box& region) override {
    trireme::copy_region(from, from_box, to, to_box, region);
  }
  // Whatever was put in is done.
  void record(DeviceEvent& event) override { static_cast<cpu::CpuEvent&>(event).stream = nullptr; }
  void wait(const DeviceEvent& event) override {
    const auto& there = static_cast<const cpu::CpuEvent&>(event);
    if (there.stream != nullptr) there.stream->wait_for(there.copies);
  }
  void synchronize() override {}
};

class CpuDevice : public Device {
 public:
  const std::string& name() const override {
    static const std::string kName = "cpu";
    return kName;
  }
  KernelChoice choose(const KernelQuery& query) const override {
    const bool tuned = query.tuning != nullptr && query.numerics == Numerics::kFast;
    const Kernel& kernel = tuned ? choose_kernel(query.op, query.chosen_by, *query.tuning)
                                 : choose_kernel(query.op, query.chosen_by, query.numerics);
    int64_t scratch = kernel.scratch_bytes(query.types, query.threads);
    // As much whichever of them measuring finds, so that no plan's bytes depend on it.
    if (tuned && kernel.rivals != nullptr && !kernel.rivals->key(query.chosen_by).empty()) {
      for (const Kernel* each : kernels_of(query.op)) {
        if (each->rivals == kernel.rivals && (each->why_not == nullptr || each->why_not(query.chosen_by).empty()))
          scratch = std::max(scratch, each->scratch_bytes(query.types, query.threads));
      }
    }
    return {std::string(kernel.name), scratch, kernel.kept()};
  }
  std::string tuned_as() const override {
    std::string model = cpu_model();
    for (char& c : model) c = c < ' ' || c > '~' ? '?' : c;
    return fmt::format("CPU {}, {}, oneDNN {}, kernels {}", model.substr(0, 200), to_string(isa()),
                       cpu::onednn_version(), build_info().kernels);
  }
  std::string work_to_measure(const KernelQuery& query) const override {
    const Kernel& kernel = choose_kernel(query.op, query.chosen_by, query.numerics);
    return query.numerics == Numerics::kFast && kernel.rivals != nullptr ? kernel.rivals->key(query.chosen_by) : "";
  }
  std::string quickest_way(const KernelQuery& query, std::span<const Cores> others) const override {
    const Kernel& kernel = choose_kernel(query.op, query.chosen_by, query.numerics);
    return kernel.rivals == nullptr ? "" : std::string(kernel.rivals->quickest(query.chosen_by, others));
  }
  KernelFn* kernel(const OpDef& op, std::string_view name) const override {
    for (const Kernel* kernel : kernels_of(op)) {
      if (kernel->name == name) return kernel->run;
    }
    return nullptr;
  }
  std::string bits(Numerics numerics) const override {
    // Nothing is multiplied by AMX in invariant mode.
    const Isa of_bits = numerics == Numerics::kInvariant ? std::min(isa(), Isa::kAvx512Bf16) : isa();
    return fmt::format("{} on {}", to_string(numerics), to_string(of_bits));
  }
  std::string processor() const override { return cpu_model(); }
  std::string why_no_quicker(DType dtype) const override {
    if (dtype != DType::kBF16 || isa() >= Isa::kAvx512Bf16) return "";
    return fmt::format("'{}' has no products of bf16, so that their operands are widened to f32", to_string(isa()));
  }
  // Block by block, while the rows are in the cache.
  bool fuses_products(DType dtype) const override { return dtype == DType::kF32 || dtype == DType::kBF16; }
  std::optional<Peak> measure_peak(ThreadPool& pool, const PeakOptions& options) const override {
    return trireme::measure_peak(pool, options);
  }
  Memory memory() const override { return Memory::kHost; }
  bool sends_in_place() const override { return true; }
  int64_t memory_bytes() const override { return 0; }
  int64_t alignment() const override { return kAlignment; }
  // In large pages where that fills some, so that rows which lie far apart are reached through few of them.
  DeviceMemory allocate(int64_t bytes) override {
    constexpr size_t kPage = 4096, kLargePage = size_t{2} << 20;
    const auto size = static_cast<size_t>(bytes);
    const size_t page = size < kLargePage ? kPage : kLargePage;
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(page, (size + page - 1) / page * page));
    if (data == nullptr)
      fail(ErrorKind::kIo,
           "this host has no memory for the {} bytes that the plan takes; use a smaller batch or model, or more hosts",
           bytes);
    // Refused where the system has none, which is fine. What is left at the end takes small ones.
    if (page == kLargePage) ::madvise(data, size / kLargePage * kLargePage, MADV_HUGEPAGE);
    return {{data, size}, std::shared_ptr<void>(data, [](void* p) { std::free(p); })};
  }
  std::unique_ptr<DeviceStream> stream() override { return std::make_unique<CpuStream>(); }
  std::unique_ptr<DeviceStream> copy_stream() override { return std::make_unique<cpu::CopyStream>(); }
  std::unique_ptr<DeviceEvent> event() override { return std::make_unique<cpu::CpuEvent>(); }

 private:
  static constexpr int64_t kAlignment = 64;  // of a cache line
};

}  // namespace

std::shared_ptr<Device> make_cpu(std::string_view told) {
  require(told.empty(), "the device 'cpu' takes nothing after a colon ('{}'); write cpu", told);
  return std::make_shared<CpuDevice>();
}

Device& cpu_device() {
  static CpuDevice device;
  return device;
}

}  // namespace trireme
