// Products of f32 or bf16 matrices, computed in f32 on the calling thread by tiles of packed operands, as in
// packed_product.h, but without leaves: the sums of some hundred terms at a time are added to the result so far. So an
// element's bits depend only on the number of terms.
//
// While a block is computed, what is packed next is prefetched. In a weight's gradient both operands are read from
// memory and each serves only a few hundred multiply-adds, so packing would otherwise wait for memory.
#pragma once

#include "trireme/backend/cpu/products/gemm.h"

namespace trireme::cpu {

// What multiply_in_blocks needs for a product of these sizes, or smaller ones, whatever the instruction set.
int64_t blocked_floats(int64_t m, int64_t n, int64_t k);
// `room` lies on a cache line. alpha is 1, and beta 0 or 1.
template <class T>
void multiply_in_blocks(const GemmOf<T>& g, float* room);

}  // namespace trireme::cpu
