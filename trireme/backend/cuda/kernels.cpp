#include "trireme/backend/cuda/kernels.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "trireme/base/error.h"

namespace trireme::cuda {

#define KERNELS(file) std::span<const CudaKernel> file##_kernels();
#include "trireme/backend/cuda/kernels.def"
#undef KERNELS

namespace {

const std::vector<CudaKernel>& all_cuda_kernels() {
  static const std::vector<CudaKernel> all = [] {
    std::vector<CudaKernel> out;
#define KERNELS(file) std::ranges::copy(file##_kernels(), std::back_inserter(out));
#include "trireme/backend/cuda/kernels.def"
#undef KERNELS
    return out;
  }();
  return all;
}

const std::vector<const CudaKernel*>& kernels_for(std::string_view op) {
  static const auto by_op = [] {
    std::map<std::string_view, std::vector<const CudaKernel*>> out;
    for (const CudaKernel& kernel : all_cuda_kernels()) out[kernel.op].push_back(&kernel);
    return out;
  }();
  static const std::vector<const CudaKernel*> none;
  const auto found = by_op.find(op);
  return found == by_op.end() ? none : found->second;
}

constexpr std::string_view kPrelude = R"cuda(
typedef long long i64;
struct bf16 { unsigned short bits; };
__device__ inline float load(float x) { return x; }
__device__ inline double load(double x) { return x; }
__device__ inline float load(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline i64 load(int x) { return x; }
__device__ inline i64 load(i64 x) { return x; }
__device__ inline i64 load(signed char x) { return x; }
__device__ inline i64 load(unsigned char x) { return x; }
__device__ inline i64 load(bool x) { return x; }
template <class T> struct As { template <class W> static __device__ T of(W x) { return (T)x; } };
template <> struct As<bool> { template <class W> static __device__ bool of(W x) { return x != 0; } };
template <> struct As<bf16> {
  static __device__ bf16 of(float x) {
    const unsigned bits = __float_as_uint(x);
    if (x != x) return {(unsigned short)((bits >> 16) | 0x40)};
    return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  }
  static __device__ bf16 of(double x) { return of((float)x); }
  static __device__ bf16 of(i64 x) { return of((float)x); }
};
)cuda";

// For what is written by hand, after the types of a call.
constexpr std::string_view kShared = R"cuda(
// The same in every thread of the block; `room` is shared.
template <class F> __device__ W over_block(W mine, F join, W* room) {
  for (int step = 16; step > 0; step /= 2) mine = join(mine, __shfl_xor_sync(~0u, mine, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  W all = room[0];
  for (int warp = 1; warp < blockDim.x / 32; ++warp) all = join(all, room[warp]);
  return all;
}

// i32 or i64.
struct Numbers { const void* at; int bytes; __device__ i64 operator[](i64 i) const {
  return bytes == 4 ? (i64)((const int*)at)[i] : ((const i64*)at)[i]; } };

// Whether it is from 0 to the limit; the first of a stream that is not is noted (Findings in stream.h). The same in every
// thread of the block.
__device__ inline bool is_below(i64 number, i64 limit, i64 position, i64* finding, i64 call) {
  if (number >= 0 && number < limit) return true;
  if (threadIdx.x == 0 && atomicCAS((unsigned long long*)finding, 0ull, 1ull) == 0ull)
    finding[1] = call, finding[2] = number, finding[3] = position;
  return false;
}
)cuda";

}  // namespace

const CudaKernel* kernel_for(const OpDef& op, const TypeArgs& args) {
  for (const CudaKernel* kernel : kernels_for(op.name)) {
    if (kernel->can_run(args)) return kernel;
  }
  return nullptr;
}

const CudaKernel* kernel_named(const OpDef& op, std::string_view name) {
  for (const CudaKernel* kernel : kernels_for(op.name)) {
    if (kernel->name == name) return kernel;
  }
  return nullptr;
}

bool is_own(KernelFn* kernel) {
  static const auto own = [] {
    std::unordered_set<KernelFn*> out;
    for (const CudaKernel& each : all_cuda_kernels()) out.insert(each.run);
    return out;
  }();
  return own.contains(kernel);
}

std::string no_float(const TypeArgs& args) {
  const DType dtype = args.in[0].dtype;
  if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF64) return "";
  return fmt::format("it is written for f32, bf16 and f64, not {}", to_string(dtype));
}

std::string prelude(DType dtype) {
  const auto with = [](std::string_view t, std::string_view w) {
    return fmt::format("{}typedef {} T;\ntypedef {} W;\ntypedef {} S;\n{}", kPrelude, t, w, w, kShared);
  };
  switch (dtype) {
    case DType::kF32:
      return with("float", "float");
    case DType::kF64:
      return with("double", "double");
    case DType::kBF16:
      return with("bf16", "float");
    default:
      fail(ErrorKind::kInternal, "cuda: no kernel computes with {}", to_string(dtype));
  }
}

}  // namespace trireme::cuda
