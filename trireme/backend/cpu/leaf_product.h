// Products of f32 matrices whose bits do not depend on how they are cut, nor on the number of
// threads: an element of the result is a sum taken in the leaves of the summed dimension
// (leaves.h), in the order of its terms, by fused multiply-adds, whatever tile it is computed in.
#pragma once

#include <vector>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/product.h"

namespace trireme::cpu {

// The runs of a sum over a dimension [outer, inner] flattened, cut in leaves along `outer`:
// `whole`, `start` and `size` of the piece of outer that is here.
struct LeafDim {
  int64_t whole = 0, start = 0, size = 0;
  int64_t inner = 1;  // elements of a whole step of it
  // Copies of the dimension, `repeat_step` apart, that belong to the same leaves.
  int64_t repeats = 1;
  int64_t repeat_step = 0;
};
std::vector<LeafRun> leaf_runs(const LeafDim& dim);

// The product with its sums in those runs, which together have product.k terms.
int64_t leaf_product_scratch(const Product& product, int threads);
void multiply_in_leaves(const Product& product, const std::vector<LeafRun>& runs,
                        const Matrices<float>& at, const KernelArgs& args);

// c = op(a) op(b), or added to c: one leaf, on the calling thread; for the tiles of attention.
// `room` has one_leaf_floats(g.n, g.k) floats.
int64_t one_leaf_floats(int64_t n, int64_t k);
void gemm_in_one_leaf(const Gemm& g, float* room);

}  // namespace trireme::cpu
