// Products of matrices on the GPU, by cuBLAS.
#pragma once

#include <span>

#include "trireme/backend/cuda/stream.h"
#include "trireme/tensor/dtype.h"

namespace trireme::cuda {

// Row-major, as it is stored.
struct Matrix {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t row = 0;    // elements from one row to the next
  int64_t batch = 0;  // elements from one batch to the next
  bool is_transposed = false;
};

struct Multiply {
  int64_t m = 0, n = 0, k = 0, batches = 1;
  double alpha = 1, beta = 0;
};

// As much scratch as NVIDIA advises for cuBLAS on Hopper.
constexpr int64_t kLargeWorkspace = int64_t{32} << 20;

// c[m,n] = alpha a[m,k] b[k,n] + beta c, in each batch. f32 is computed as f32, not as TF32.
void multiply(CudaStream& stream, std::span<std::byte> workspace, const Multiply& how, const Matrix& a, const Matrix& b,
              const Matrix& c);

// The same where `data` of each is in the GPU's memory and holds the address of each batch's matrix.
void multiply_each(CudaStream& stream, std::span<std::byte> workspace, const Multiply& how, const Matrix& a,
                   const Matrix& b, const Matrix& c);

}  // namespace trireme::cuda
