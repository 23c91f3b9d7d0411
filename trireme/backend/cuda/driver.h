// What the device cuda calls of NVIDIA's libraries: the driver, the compiler NVRTC and the products of cuBLAS. They are
// loaded when a device is made, and declared here, so the program is built without CUDA and runs without a GPU.
//
// Names, numbers and types are those of the headers of CUDA, whose binary interface NVIDIA keeps from release to
// release (a `_v2` at the end of a name says which one).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme::cuda {

using DevicePtr = unsigned long long;  // CUdeviceptr; with unified addressing also an address of the host
using Handle = void*;  // CUcontext, CUstream, CUevent, CUmodule, CUfunction, nvrtcProgram, cublasHandle_t
using CuResult = int;  // 0: well

constexpr int kMajor = 75, kMinor = 76, kMultiprocessors = 16;  // CU_DEVICE_ATTRIBUTE_*
constexpr int kMaxDynamicShared = 8;                            // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kNonBlocking = 1;                            // CU_STREAM_NON_BLOCKING
constexpr unsigned kNoTiming = 2;                               // CU_EVENT_DISABLE_TIMING
constexpr unsigned kForAllContexts = 1;                         // CU_MEMHOSTREGISTER_PORTABLE
constexpr int kOutOfMemory = 2;                                 // CUDA_ERROR_OUT_OF_MEMORY

// One line a function: its place in the table, the name in the library, what it takes.
#define TRIREME_CUDA_DRIVER(X)                                                                                        \
  X(init, "cuInit", (unsigned))                                                                                       \
  X(error_name, "cuGetErrorName", (CuResult, const char**))                                                           \
  X(error_text, "cuGetErrorString", (CuResult, const char**))                                                         \
  X(device_count, "cuDeviceGetCount", (int*))                                                                         \
  X(device_get, "cuDeviceGet", (int*, int))                                                                           \
  X(device_name, "cuDeviceGetName", (char*, int, int))                                                                \
  X(device_attribute, "cuDeviceGetAttribute", (int*, int, int))                                                       \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t*, int))                                                             \
  X(context_retain, "cuDevicePrimaryCtxRetain", (Handle*, int))                                                       \
  X(context_set, "cuCtxSetCurrent", (Handle))                                                                         \
  X(memory_info, "cuMemGetInfo_v2", (size_t*, size_t*))                                                               \
  X(allocate, "cuMemAlloc_v2", (DevicePtr*, size_t))                                                                  \
  X(release, "cuMemFree_v2", (DevicePtr))                                                                             \
  X(lock_pages, "cuMemHostRegister_v2", (void*, size_t, unsigned))                                                    \
  X(unlock_pages, "cuMemHostUnregister", (void*))                                                                     \
  X(copy, "cuMemcpyAsync", (DevicePtr to, DevicePtr from, size_t, Handle stream))                                     \
  X(fill, "cuMemsetD8Async", (DevicePtr, unsigned char, size_t, Handle stream))                                       \
  X(stream_create, "cuStreamCreate", (Handle*, unsigned))                                                             \
  X(stream_destroy, "cuStreamDestroy_v2", (Handle))                                                                   \
  X(stream_synchronize, "cuStreamSynchronize", (Handle))                                                              \
  X(stream_wait, "cuStreamWaitEvent", (Handle, Handle, unsigned))                                                     \
  X(event_create, "cuEventCreate", (Handle*, unsigned))                                                               \
  X(event_destroy, "cuEventDestroy_v2", (Handle))                                                                     \
  X(event_record, "cuEventRecord", (Handle, Handle))                                                                  \
  X(module_load, "cuModuleLoadData", (Handle*, const void*))                                                          \
  X(module_function, "cuModuleGetFunction", (Handle*, Handle, const char*))                                           \
  X(function_attribute, "cuFuncSetAttribute", (Handle, int, int))                                                     \
  X(launch, "cuLaunchKernel",                                                                                         \
    (Handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, \
     unsigned shared_bytes, Handle stream, void** parameters, void** extra))

#define TRIREME_CUDA_COMPILER(X)                                                                          \
  X(error_text_of, "nvrtcGetErrorString", (CuResult))                                                     \
  X(create, "nvrtcCreateProgram",                                                                         \
    (Handle*, const char* source, const char* name, int headers, const char* const*, const char* const*)) \
  X(destroy, "nvrtcDestroyProgram", (Handle*))                                                            \
  X(compile, "nvrtcCompileProgram", (Handle, int options, const char* const*))                            \
  X(log_size, "nvrtcGetProgramLogSize", (Handle, size_t*))                                                \
  X(log, "nvrtcGetProgramLog", (Handle, char*))                                                           \
  X(cubin_size, "nvrtcGetCUBINSize", (Handle, size_t*))                                                   \
  X(cubin, "nvrtcGetCUBIN", (Handle, char*))

// Types of elements, as cudaDataType_t has them, and of sums, as cublasComputeType_t.
constexpr int kF32 = 0, kF64 = 1, kBF16 = 14;
constexpr int kSumF32 = 68, kSumF64 = 70;

#define TRIREME_CUDA_BLAS(X)                                                                                       \
  X(create, "cublasCreate_v2", (Handle*))                                                                          \
  X(destroy, "cublasDestroy_v2", (Handle))                                                                         \
  X(set_stream, "cublasSetStream_v2", (Handle, Handle))                                                            \
  X(set_workspace, "cublasSetWorkspace_v2", (Handle, void*, size_t))                                               \
  X(product, "cublasGemmStridedBatchedEx",                                                                         \
    (Handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a, int a_type,  \
     int lda, long long a_step, const void* b, int b_type, int ldb, long long b_step, const void* beta, void* c,   \
     int c_type, int ldc, long long c_step, int batches, int sums, int algorithm))                                 \
  X(products, "cublasGemmBatchedEx",                                                                               \
    (Handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* const* a,       \
     int a_type, int lda, const void* const* b, int b_type, int ldb, const void* beta, void* const* c, int c_type, \
     int ldc, int batches, int sums, int algorithm))

#define TRIREME_CUDA_MEMBER(member, name, arguments) CuResult(*member) arguments;
struct Driver {
  TRIREME_CUDA_DRIVER(TRIREME_CUDA_MEMBER)
};
struct Compiler {
  TRIREME_CUDA_COMPILER(TRIREME_CUDA_MEMBER)
};
struct Blas {
  TRIREME_CUDA_BLAS(TRIREME_CUDA_MEMBER)
};
#undef TRIREME_CUDA_MEMBER

// Each is loaded once a process. Throws kUnsupported with what is missing and where it was looked for.
const Driver& driver();
const Compiler& compiler();
const Blas& blas();

// Throws kIo for what failed, with the driver's name for the reason; `what` is what was tried.
void check(CuResult status, const char* what);
void check_blas(CuResult status, const char* what);

// Machine code for a GPU of this compute capability, "90"; what it is called in messages. Throws kInternal with the
// compiler's own text.
std::string compiled(const std::string& source, const std::string& name, const std::string& capability);

inline DevicePtr address(const void* at) {
  return reinterpret_cast<DevicePtr>(at);
}

}  // namespace trireme::cuda
