// Matrix products of f32 matrices in row-major order, by oneDNN on the calling thread.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/backend/cpu/isa/isa.h"

namespace trireme::cpu {

// c[m,n] = alpha op(a)[m,k] op(b)[k,n] + beta c. `lda` is the distance of two rows of a as stored.
template <class T>
struct GemmOf {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  const T* b = nullptr;
  float* c = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 0;
};
using Gemm = GemmOf<float>;

// On the calling thread.
void gemm(const Gemm& g);

// Makes oneDNN use the calling thread alone and no instruction set above process_isa(), and signals whose handlers ask
// for it use a stack of their own (base/signal_stack.h says why). Every task that calls oneDNN calls this first.
void prepare_onednn();

// Whether oneDNN uses this instruction set. It takes it once a process, so that set_isa does not change it.
bool onednn_has(Isa isa);
std::string onednn_version();  // "2.6.3"

}  // namespace trireme::cpu
