// Products of f32 or bf16 matrices, in f32, on the calling thread by tiles of packed operands, as packed_product.h, but
// without leaves: the sums of some hundred terms are added to what the result holds of those before. So an element's
// bits depend on the number of terms and on nothing else.
//
// While a block is computed, what is packed next comes nearer: in a weight's gradient, where both operands are read
// from memory and each only serves a few hundred multiply-adds, packing would otherwise wait for it.
#pragma once

#include "trireme/backend/cpu/products/gemm.h"

namespace trireme::cpu {

// What multiply_in_blocks needs for a product of these sizes, or smaller ones, whatever the instruction set.
int64_t blocked_floats(int64_t m, int64_t n, int64_t k);
// `room` lies on a cache line. alpha is 1, and beta 0 or 1.
template <class T>
void multiply_in_blocks(const GemmOf<T>& g, float* room);

}  // namespace trireme::cpu
