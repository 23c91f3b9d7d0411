// A GPU of this host: its context, and the functions compiled for it. One a process and GPU, kept to the end.
#pragma once

#include <compare>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "trireme/backend/cuda/driver.h"
#include "trireme/tensor/dtype.h"

namespace trireme::cuda {

class Gpu {
 public:
  // By its number, from 0, among those that CUDA_VISIBLE_DEVICES leaves. Throws kNotFound where there are not so many.
  static Gpu& of(int ordinal);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const std::string& name() const { return name_; }              // "NVIDIA H100 80GB HBM3"
  const std::string& capability() const { return capability_; }  // "90"
  int64_t memory_bytes() const { return memory_bytes_; }
  int multiprocessors() const { return multiprocessors_; }

  // Makes it the calling thread's GPU. What calls the driver does that first, for any thread may call it.
  void use() const { check(driver().context_set(context_), "choosing the GPU"); }

  // For destructors, which have nobody to throw to.
  bool try_use() const noexcept { return driver().context_set(context_) == 0; }

  // The kernel of this name in this source, which is compiled when it is first asked for. With more shared memory than
  // 48 KiB, that must be said here.
  Handle function(const std::string& source, const std::string& name, int shared_bytes = 0);

  // The same for sources that are asked for in every call and made from a type and a size. Names are literals: one that
  // stands elsewhere is another.
  struct Wanted {
    const char* name;
    DType dtype = DType::kF32;
    int64_t size = 0;
    auto operator<=>(const Wanted&) const = default;
  };
  template <class MakeSource>
  Handle function(const Wanted& wanted, const MakeSource& source, int shared_bytes = 0) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = functions_.find(wanted); found != functions_.end()) return found->second;
    }
    const Handle made = function(source(), std::string(wanted.name), shared_bytes);
    const std::lock_guard lock(mutex_);
    return functions_[wanted] = made;
  }

 private:
  explicit Gpu(int ordinal);

  Handle context_ = nullptr;
  std::string name_, capability_;
  int64_t memory_bytes_ = 0;
  int multiprocessors_ = 0;
  std::mutex mutex_;
  std::map<std::string, Handle> modules_;  // by source
  std::map<Wanted, Handle> functions_;
};

}  // namespace trireme::cuda
