// The matrix product that matmul and linear_weight_grad compute, and its kernels in f32 and bf16.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/backend/cpu/products/gemm.h"
#include "trireme/backend/cpu/storage.h"

namespace trireme::cpu {

// How far apart the operands of two products of a batch lie, in elements.
struct BatchSteps {
  int64_t a = 0, b = 0, c = 0;
};

// `batch` products c[m,n] = op(a)[m,k] op(b)[k,n] of dense matrices, a, b and c `steps` apart.
struct Product {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;
  bool onto = false;  // added to what c holds, which is f32
  BatchSteps steps = {};

  int64_t lda() const { return transpose_a ? m : k; }
  int64_t ldb() const { return transpose_b ? k : n; }
};

// Where the matrices lie.
template <class T, class C = T>
struct Matrices {
  const T* a;
  const T* b;
  C* c;
};

// How f32 matrices are multiplied: by oneDNN's sgemm, by blocked_product.h, or by tiled_product.h.
enum class Way { kSgemm, kBlocks, kTiles };

// Whether a product of f32 matrices is cut along its sums, in both ways, so that they are added in parts.
bool cuts_terms(const Product& product);
// With f32_scratch bytes of room.
int64_t f32_scratch(const Product& product, Way way, int threads);
void multiply_f32(const Product& product, Way way, const Matrices<float>& at, std::byte* scratch, ThreadPool* pool);
// "" where Way::kTiles can be taken, which needs no more room than Way::kBlocks; otherwise the reason.
std::string why_no_tiles(const Product& product);
// The block of a product that most of its time goes into, on matrices of its own: as one thread multiplies it.
Gemm largest_block(const Product& product, Way way);

// Of bf16 matrices, with c bf16 or f32, by oneDNN, which keeps what it compiles in `state`.
template <class C>
int64_t onednn_scratch(const Product& product, int threads);
template <class C>
void multiply_by_onednn(const Product& product, const Matrices<Bf16, C>& at, const KernelArgs& args);

// The same, widened to f32 where they are packed for products in blocks.
template <class C>
int64_t widening_scratch(const Product& product, int threads);
template <class C>
void multiply_widened(const Product& product, const Matrices<Bf16, C>& at, const KernelArgs& args);

}  // namespace trireme::cpu
