#include "trireme/backend/cuda/gpu.h"

#include <array>
#include <memory>

#include "trireme/base/error.h"

namespace trireme::cuda {

Gpu& Gpu::of(int ordinal) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Gpu>> made;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Gpu>& gpu = made[ordinal];
  if (!gpu) gpu.reset(new Gpu(ordinal));
  return *gpu;
}

Gpu::Gpu(int ordinal) {
  int count = 0;
  check(driver().device_count(&count), "counting the GPUs");
  if (ordinal >= count)
    fail(ErrorKind::kNotFound, "the device 'cuda:{}' is not there; this host has {} of them, from cuda:0 on", ordinal,
         count);
  int device = 0;
  check(driver().device_get(&device, ordinal), "finding the GPU");
  std::array<char, 256> text{};
  check(driver().device_name(text.data(), static_cast<int>(text.size()), device), "reading the GPU's name");
  name_ = text.data();
  int major = 0, minor = 0;
  check(driver().device_attribute(&major, kMajor, device), "reading the GPU's compute capability");
  check(driver().device_attribute(&minor, kMinor, device), "reading the GPU's compute capability");
  check(driver().device_attribute(&multiprocessors_, kMultiprocessors, device), "counting its multiprocessors");
  capability_ = fmt::format("{}{}", major, minor);
  size_t bytes = 0;
  check(driver().device_memory(&bytes, device), "reading the size of the GPU's memory");
  memory_bytes_ = static_cast<int64_t>(bytes);
  check(driver().context_retain(&context_, device), "starting the GPU");
}

Handle Gpu::function(const std::string& source, const std::string& name, int shared_bytes) {
  const std::lock_guard lock(mutex_);
  use();
  Handle& module = modules_[source];
  if (module == nullptr)
    check(driver().module_load(&module, compiled(source, name, capability_).data()), "loading a kernel");
  Handle function = nullptr;
  check(driver().module_function(&function, module, name.c_str()), "finding a kernel");
  constexpr int kUsualShared = 48 << 10;
  if (shared_bytes > kUsualShared)
    check(driver().function_attribute(function, kMaxDynamicShared, shared_bytes), "asking for shared memory");
  return function;
}

}  // namespace trireme::cuda
