// The device cuda: a GPU of NVIDIA's, through its driver. cuda:1 is the second of those that CUDA_VISIBLE_DEVICES
// leaves; cuda is the one that falls to this rank of the host.
#include <charconv>

#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/stream.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"

namespace trireme {
namespace cuda {

constexpr std::string_view kOnHost = "host.";  // before the name of a kernel of the CPU

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int ordinal) : gpu_(Gpu::of(ordinal)) {}

  const std::string& name() const override {
    static const std::string kName = "cuda";
    return kName;
  }
  KernelChoice choose(const KernelQuery& query) const override {
    require_fast(query.numerics);
    if (const CudaKernel* kernel = kernel_for(query.op, query.types); kernel != nullptr)
      return {std::string(kernel->name), kernel->scratch_bytes(query.types)};
    KernelQuery here = query;
    here.tuning = nullptr;
    const KernelChoice choice = cpu_device().choose(here);
    TRIREME_LOG(kDebug, "dispatch", "cuda: {} runs on the host, between copies", query.op.name);
    return {std::string(kOnHost) + choice.name, choice.scratch_bytes};
  }
  KernelFn* kernel(const OpDef& op, std::string_view name) const override {
    if (name.starts_with(kOnHost)) return cpu_device().kernel(op, name.substr(kOnHost.size()));
    const CudaKernel* const kernel = kernel_named(op, name);
    return kernel == nullptr ? nullptr : kernel->run;
  }
  std::string bits(Numerics numerics) const override {
    require_fast(numerics);
    return fmt::format("{} on sm_{} beside {}", to_string(numerics), gpu_.capability(), cpu_device().bits(numerics));
  }
  std::string processor() const override { return fmt::format("{} beside {}", gpu_.name(), cpu_device().processor()); }

  Memory memory() const override { return Memory::kDevice; }
  bool sends_in_place() const override { return false; }
  int64_t memory_bytes() const override { return gpu_.memory_bytes(); }
  int64_t alignment() const override { return 256; }
  DeviceMemory allocate(int64_t bytes) override {
    gpu_.use();
    DevicePtr at = 0;
    const CuResult status = driver().allocate(&at, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    if (status == kOutOfMemory) {
      size_t free = 0, all = 0;
      check(driver().memory_info(&free, &all), "asking for free memory");
      fail(ErrorKind::kIo, "{} has {} bytes free of {}; the plan takes {}: use a smaller batch or model, or more GPUs",
           gpu_.name(), free, all, bytes);
    }
    check(status, "taking memory");
    auto* const data = reinterpret_cast<std::byte*>(at);
    return {{data, static_cast<size_t>(bytes)}, std::shared_ptr<void>(data, [&gpu = gpu_](void* p) {
              if (gpu.try_use()) driver().release(address(p));
            })};
  }
  std::shared_ptr<void> lock_pages(std::span<std::byte> host) override {
    if (host.empty()) return nullptr;
    gpu_.use();
    const CuResult status = driver().lock_pages(host.data(), host.size(), kForAllContexts);
    if (status != 0) {
      const char* name = nullptr;
      driver().error_name(status, &name);
      TRIREME_LOG(kWarn, "exec",
                  "{} bytes of the host's memory cannot be page-locked ({}): copies between them and {} are slower",
                  host.size(), name == nullptr ? "unknown error" : name, gpu_.name());
      return nullptr;
    }
    return {host.data(), [&gpu = gpu_](void* at) {
              if (gpu.try_use()) driver().unlock_pages(at);
            }};
  }
  std::unique_ptr<DeviceStream> stream() override { return std::make_unique<CudaStream>(gpu_); }
  std::unique_ptr<DeviceEvent> event() override { return std::make_unique<CudaEvent>(gpu_); }

 private:
  static void require_fast(Numerics numerics) {
    if (numerics == Numerics::kFast) return;
    fail(ErrorKind::kUnsupported,
         "the device 'cuda' does not keep bits over cuts; use numerics = 'fast', or the device cpu");
  }

  Gpu& gpu_;
};

}  // namespace cuda

namespace cuda {
namespace {

// The ranks of a host take its GPUs in turn.
int gpu_of_this_rank() {
  constexpr int64_t kMost = 1 << 20;
  int count = 0;
  check(driver().device_count(&count), "counting the GPUs");
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    if (const std::optional<int64_t> rank = flag_int(name, 0, kMost))
      return static_cast<int>(*rank % std::max(count, 1));
  }
  return 0;
}

}  // namespace
}  // namespace cuda

std::shared_ptr<Device> make_cuda(std::string_view told) {
  int ordinal = 0;
  const char* const end = told.data() + told.size();
  const bool is_number = told.empty() || (std::from_chars(told.data(), end, ordinal).ptr == end && ordinal >= 0);
  require(is_number, "the device 'cuda' does not take '{}'; after the colon stands the number of a GPU, as in cuda:0",
          told);
  return std::make_shared<cuda::CudaDevice>(told.empty() ? cuda::gpu_of_this_rank() : ordinal);
}

}  // namespace trireme
