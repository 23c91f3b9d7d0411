#include "trireme/backend/cuda/stream.h"

#include <array>

#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/sources.h"
#include "trireme/base/error.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::cuda {

// -- findings ----------------------------------------------------------------------------------------

constexpr int64_t kFindingBytes = 4 * sizeof(int64_t);
constexpr size_t kMostCalls = 1 << 16;  // of a stream that only others wait for

Findings::Findings(Gpu& gpu) : gpu_(gpu) {
  gpu_.use();
  check(driver().allocate(&at_, kFindingBytes), "taking memory");
  check(driver().fill(at_, 0, kFindingBytes, nullptr), "clearing memory");
  check(driver().stream_synchronize(nullptr), "clearing memory");
}

Findings::~Findings() {
  driver().release(at_);
}

int64_t Findings::add(const std::string* what, const char* text, int64_t limit) {
  const std::lock_guard lock(mutex_);
  calls_.push_back({what, text, limit});
  if (calls_.size() > kMostCalls) {
    calls_.pop_front();
    ++first_;
  }
  return first_ + std::ssize(calls_) - 1;
}

void Findings::raise(Handle stream, bool all_are_done) {
  const std::lock_guard lock(mutex_);
  if (calls_.empty()) return;
  std::array<int64_t, 4> found{};
  check(driver().copy(address(found.data()), at_, kFindingBytes, stream), "reading what kernels found");
  check(driver().stream_synchronize(stream), "reading what kernels found");
  const int64_t at = found[1] - first_;
  const bool is_known = at >= 0 && at < std::ssize(calls_);
  const Call call = is_known ? calls_[static_cast<size_t>(at)] : Call{};
  if (all_are_done) {
    first_ += std::ssize(calls_);
    calls_.clear();
  }
  if (found[0] == 0) return;
  check(driver().fill(at_, 0, kFindingBytes, stream), "clearing memory");
  if (!is_known)
    fail(ErrorKind::kInvalidArgument,
         "a kernel was given the number {} at place {}, which is outside the range of what it reads", found[2],
         found[3]);
  Error error(ErrorKind::kInvalidArgument,
              fmt::format(fmt::runtime(call.text), found[2], found[3], call.limit, call.limit - 1));
  throw error.note(*call.what);
}

// -- events ------------------------------------------------------------------------------------------

CudaEvent::CudaEvent(Gpu& gpu) {
  gpu.use();
  check(driver().event_create(&handle, kNoTiming), "making an event");
}

CudaEvent::~CudaEvent() {
  driver().event_destroy(handle);
}

// -- streams -----------------------------------------------------------------------------------------

CudaStream::CudaStream(Gpu& gpu) : gpu_(gpu), own_(std::make_shared<Findings>(gpu)), awaited_{own_} {
  gpu_.use();
  check(driver().stream_create(&handle_, kNonBlocking), "making a stream");
}

// What was put in is done first: it is somebody's to wait for.
CudaStream::~CudaStream() {
  if (!gpu_.try_use()) return;  // the driver has ended
  driver().stream_synchronize(handle_);
  if (blas_ != nullptr) cuda::blas().destroy(blas_);
  driver().stream_destroy(handle_);
}

Handle CudaStream::blas(std::span<std::byte> workspace) {
  if (blas_ == nullptr) {
    check_blas(cuda::blas().create(&blas_), "starting cuBLAS");
    check_blas(cuda::blas().set_stream(blas_, handle_), "giving cuBLAS a stream");
  }
  // Scratch at one place has another size in another action.
  if (workspace.data() != workspace_.data() || workspace.size() != workspace_.size())
    check_blas(cuda::blas().set_workspace(blas_, workspace.data(), workspace.size()), "giving cuBLAS its scratch");
  workspace_ = workspace;
  return blas_;
}

void CudaStream::run(Handle function, const Grid& grid, std::span<const void* const> parameters) {
  if (grid.blocks == 0 || grid.blocks_y == 0 || grid.blocks_z == 0) return;
  std::vector<void*> addresses;
  for (const void* const at : parameters) addresses.push_back(const_cast<void*>(at));
  check(driver().launch(function, static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y),
                        static_cast<unsigned>(grid.blocks_z), static_cast<unsigned>(grid.threads), 1, 1,
                        static_cast<unsigned>(grid.shared_bytes), handle_, addresses.data(), nullptr),
        "starting a kernel");
}

void CudaStream::move(DevicePtr to, DevicePtr from, int64_t bytes) {
  if (bytes == 0 || to == from) return;
  gpu_.use();
  check(driver().copy(to, from, static_cast<size_t>(bytes), handle_), "copying");
}

void CudaStream::clear(DevicePtr at, int64_t bytes, unsigned char with) {
  if (bytes > 0) check(driver().fill(at, with, static_cast<size_t>(bytes), handle_), "clearing memory");
}

CudaStream::Check CudaStream::check_in_call(const char* text, int64_t limit) {
  return {own_->at(), own_->add(what_, text, limit)};
}

void CudaStream::launch(KernelFn* kernel, const KernelArgs& args, const std::string& what) {
  gpu_.use();
  what_ = &what;
  KernelArgs mine = args;
  mine.stream = this;
  if (is_own(kernel)) return kernel(mine);
  run_on_host(kernel, mine);
}

// A kernel of the CPU, between copies. Everything is waited for; it is slow, and says nothing new.
void CudaStream::run_on_host(KernelFn* kernel, const KernelArgs& args) {
  std::vector<HostTensor> tensors;
  tensors.reserve(args.in.size() + args.out.size());
  std::vector<View> in, out;
  for (const View& view : args.in) {
    in.push_back(tensors.emplace_back(view.type).view());
    move(address(in.back().data), address(view.data), view.bytes());
  }
  for (const View& view : args.out) out.push_back(tensors.emplace_back(view.type).view());
  check(driver().stream_synchronize(handle_), "waiting for operands");
  const HostTensor scratch(TensorType{DType::kU8, {static_cast<int64_t>(args.scratch.size())}});
  KernelArgs mine{.in = in,
                  .out = out,
                  .in_place = args.in_place,
                  .out_place = args.out_place,
                  .attrs = args.attrs,
                  .scratch = {scratch.view().data, args.scratch.size()},
                  .pool = args.pool,
                  .state = args.state};
  kernel(mine);
  for (size_t i = 0; i < out.size(); ++i) move(address(args.out[i].data), address(out[i].data), out[i].bytes());
  check(driver().stream_synchronize(handle_), "returning results");
}

void CudaStream::copy(const View& from, const View& to) {
  require(from.bytes() == to.bytes(), "{} bytes are copied to {}", from.bytes(), to.bytes());
  move(address(to.data), address(from.data), from.bytes());
}

namespace {

constexpr int kMoveThreads = 256;

// Dimensions that are walked alike on both sides are one; `size` and steps from the outermost to the innermost.
struct Moved {
  int32_t rank = 0;
  int32_t unused = 0;
  int64_t size[Shape::kMaxRank] = {};
  int64_t from[Shape::kMaxRank] = {};
  int64_t to[Shape::kMaxRank] = {};
};

Moved joined(const Steps& from, const Steps& to, const Shape& size) {
  Moved out;
  for (int dim = 0; dim < size.rank(); ++dim) {
    const auto d = static_cast<size_t>(dim);
    if (size[dim] == 1) continue;
    if (out.rank > 0 && out.from[out.rank - 1] == size[dim] * from.step[d] &&
        out.to[out.rank - 1] == size[dim] * to.step[d]) {
      out.size[out.rank - 1] *= size[dim];
      out.from[out.rank - 1] = from.step[d];
      out.to[out.rank - 1] = to.step[d];
      continue;
    }
    out.size[out.rank] = size[dim];
    out.from[out.rank] = from.step[d];
    out.to[out.rank] = to.step[d];
    ++out.rank;
  }
  return out;
}

constexpr std::string_view kMoveSource = R"cuda(
struct Moved { int rank, unused; long long size[8], from[8], to[8]; };
template <class E, class Index> __device__ void move(const E* from, E* to, long long n, const Moved& moved) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
    Index rest = (Index)i;
    long long at = 0, there = 0;
    for (int dim = moved.rank - 1; dim >= 0; --dim) {
      const Index size = (Index)moved.size[dim], here = rest % size;
      rest /= size;
      at += here * moved.from[dim];
      there += here * moved.to[dim];
    }
    to[there] = from[at];
  }
}
#define MOVE(bytes, E)                                                                                     \
  extern "C" __global__ void move##bytes(const E* from, E* to, long long n, Moved moved) {                 \
    if (n < 1ll << 31) move<E, unsigned>(from, to, n, moved);                                              \
    else move<E, unsigned long long>(from, to, n, moved);                                                  \
  }
MOVE(1, unsigned char)
MOVE(2, unsigned short)
MOVE(4, unsigned)
MOVE(8, unsigned long long)
)cuda";

}  // namespace

std::string move_source() {
  return std::string(kMoveSource);
}

void CudaStream::move_elements(const View& from, const Steps& from_steps, const View& to, const Steps& to_steps,
                               const Shape& size) {
  const int64_t n = size.elements(), bytes = size_of(from.type.dtype);
  if (n == 0) return;
  const Moved moved = joined(from_steps, to_steps, size);
  const std::byte* const source = from.data + from_steps.first * bytes;
  std::byte* const target = to.data + to_steps.first * bytes;
  if (moved.rank == 0 || (moved.rank == 1 && moved.from[0] == 1 && moved.to[0] == 1))
    return move(address(target), address(source), n * bytes);
  const char* const name = bytes == 1 ? "move1" : bytes == 2 ? "move2" : bytes == 4 ? "move4" : "move8";
  const Handle function = gpu_.function({name}, move_source);
  const int64_t blocks = std::min<int64_t>((n + kMoveThreads - 1) / kMoveThreads, 16 * gpu_.multiprocessors());
  run(function, {.blocks = blocks, .threads = kMoveThreads},
      std::initializer_list<const void*>{&source, &target, &n, &moved});
}

void CudaStream::copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                             const Box& region) {
  detail::check_region(from_box, to_box, region);
  gpu_.use();
  const auto from_steps = from_box.size.strides(), to_steps = to_box.size.strides();
  move_elements(from, {detail::offset_in(from_box, region.start), from_steps}, to,
                {detail::offset_in(to_box, region.start), to_steps}, region.size);
}

void CudaStream::record(DeviceEvent& event) {
  gpu_.use();
  auto& mine = static_cast<CudaEvent&>(event);
  check(driver().event_record(mine.handle, handle_), "recording an event");
  mine.is_recorded = true;
  mine.findings = awaited_;
}

void CudaStream::wait(const DeviceEvent& event) {
  const auto& its = static_cast<const CudaEvent&>(event);
  if (!its.is_recorded) return;
  gpu_.use();
  check(driver().stream_wait(handle_, its.handle, 0), "waiting for an event");
  awaited_.insert(its.findings.begin(), its.findings.end());
}

void CudaStream::synchronize() {
  gpu_.use();
  check(driver().stream_synchronize(handle_), "the work before");
  for (const std::shared_ptr<Findings>& findings : awaited_) findings->raise(handle_, findings == own_);
}

}  // namespace trireme::cuda
