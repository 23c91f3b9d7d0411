// Streams and events of the device cuda, and what its kernels put into a stream.
#pragma once

#include <array>
#include <deque>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/backend/cuda/gpu.h"
#include "trireme/backend/device.h"
#include "trireme/tensor/shape.h"

namespace trireme::cuda {

// What kernels find wrong with the numbers they read, such as an id that is in no table: the first of a stream, until
// it is asked for. A kernel gets the address and its number, and notes the number, the value and its place.
class Findings {
 public:
  explicit Findings(Gpu& gpu);
  ~Findings();
  Findings(const Findings&) = delete;
  Findings& operator=(const Findings&) = delete;

  DevicePtr at() const { return at_; }
  // The number of a call that may find something: `what` says where in the step it is; `text` has places for the value,
  // where it stood, the limit, and one less.
  int64_t add(const std::string* what, const char* text, int64_t limit);
  // Throws kInvalidArgument for what was found, and forgets it. `all_are_done`: so are all calls, of which none will
  // find anything; else some have been waited for, by another stream.
  void raise(Handle stream, bool all_are_done);

 private:
  struct Call {
    const std::string* what = nullptr;
    const char* text = nullptr;
    int64_t limit = 0;
  };
  Gpu& gpu_;
  DevicePtr at_ = 0;  // int64[4]: whether, the call's number, the value, its place
  std::mutex mutex_;
  std::deque<Call> calls_;  // that may find something yet
  int64_t first_ = 0;       // the number of the first of them; numbers never come again
};

class CudaEvent : public DeviceEvent {
 public:
  explicit CudaEvent(Gpu& gpu);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  Handle handle = nullptr;
  bool is_recorded = false;
  std::set<std::shared_ptr<Findings>> findings;  // of what it stands after
};

// A box of a tensor to walk in row-major order: the element it starts at and the steps in each dimension.
struct Steps {
  int64_t first = 0;
  std::array<int64_t, Shape::kMaxRank> step{};
};

class CudaStream : public DeviceStream {
 public:
  explicit CudaStream(Gpu& gpu);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void launch(KernelFn* kernel, const KernelArgs& args, const std::string& what) override;
  void copy(const View& from, const View& to) override;
  void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                   const Box& region) override;
  void record(DeviceEvent& event) override;
  void wait(const DeviceEvent& event) override;
  void synchronize() override;

  // For kernels, whose KernelArgs name it.
  static CudaStream& of(const KernelArgs& args) { return static_cast<CudaStream&>(*args.stream); }
  Gpu& gpu() { return gpu_; }
  Handle handle() const { return handle_; }
  // cuBLAS, working in this stream and in no more than this scratch.
  Handle blas(std::span<std::byte> workspace);
  struct Grid {
    int64_t blocks = 1;
    int threads = 1;
    int64_t blocks_y = 1, blocks_z = 1;
    int shared_bytes = 0;
  };
  // The addresses of the kernel's parameters, which are copied.
  void run(Handle function, const Grid& grid, std::span<const void* const> parameters);
  void run(Handle function, const Grid& grid, std::initializer_list<const void*> parameters) {
    run(function, grid, std::span<const void* const>(parameters.begin(), parameters.size()));
  }
  void move(DevicePtr to, DevicePtr from, int64_t bytes);
  // Copies `size` elements; the two have one element type and do not overlap.
  void move_elements(const View& from, const Steps& from_steps, const View& to, const Steps& to_steps,
                     const Shape& size);
  void clear(DevicePtr at, int64_t bytes, unsigned char with = 0);
  // Of a kernel that may find something wrong in this call.
  struct Check {
    DevicePtr at;
    int64_t call;
  };
  Check check_in_call(const char* text, int64_t limit);

 private:
  void run_on_host(KernelFn* kernel, const KernelArgs& args);

  Gpu& gpu_;
  Handle handle_ = nullptr;
  Handle blas_ = nullptr;
  std::span<std::byte> workspace_;  // of cuBLAS, given last
  std::shared_ptr<Findings> own_;
  std::set<std::shared_ptr<Findings>> awaited_;  // its own, and those of streams it has waited for
  const std::string* what_ = nullptr;            // the call under way
};

}  // namespace trireme::cuda
