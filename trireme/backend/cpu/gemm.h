// Matrix products of f32 matrices in row-major order, by oneDNN on the calling thread, cut into
// tasks for a pool.
#pragma once

#include <cstdint>

#include "trireme/backend/cpu/isa.h"
#include "trireme/base/thread_pool.h"

namespace trireme::cpu {

// c[m,n] = alpha op(a)[m,k] op(b)[k,n] + beta c. `lda` is the distance of two rows of a as stored.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 0;
};

// On the calling thread.
void gemm(const Gemm& g);

// `batch` products whose operands lie a, b and c elements apart, cut by fixed blocks over the pool
// (null: none).
struct BatchSteps {
  int64_t a = 0, b = 0, c = 0;
};
void batched_gemm(const Gemm& first, int64_t batch, const BatchSteps& steps, ThreadPool* pool);

// The blocks that one of `batch` products is cut into, by its sizes alone: at least 512 Mflop each and at most 16, halving
// the longer side. Smaller blocks would keep more threads busy, and run up to a quarter slower.
struct Blocks {
  int64_t m, n;  // sizes of a block; the last ones may be smaller
  int64_t count_m, count_n;
};
Blocks blocks_of(int64_t m, int64_t n, int64_t k, int64_t batch);

// Makes oneDNN use the calling thread alone and no instruction set above isa(). Every task that
// calls oneDNN calls this first.
void prepare_onednn();

// Whether oneDNN uses this instruction set, which it takes once a process.
bool onednn_has(Isa isa);

}  // namespace trireme::cpu
