// Products of f32 matrices whose bits do not depend on how they are cut, nor on the number of threads: an element of
// the result is a sum taken in the leaves of the summed dimension (leaves.h), in the order of its terms, by fused
// multiply-adds, whatever tile it is computed in.
//
// Operands are packed into panels as wide as a tile, some hundred terms at a time, which the caches hold; the tile's
// sums are in registers. (Goto, van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34, 2008.)
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/products/gemm.h"
#include "trireme/backend/cpu/products/product.h"

namespace trireme::cpu {

// The terms of a sum over a dimension [outer, inner] flattened, in leaves along `outer`: `whole`, `start` and `size` of
// the piece of outer that is here.
struct LeafDim {
  int64_t whole = 0, start = 0, size = 0;
  int64_t inner = 1;  // elements of a whole step of it
  // Copies of the dimension, `repeat_step` apart, that belong to the same leaves.
  int64_t repeats = 1;
  int64_t repeat_step = 0;
};

// In which order a product sums its terms: runs, in parts that are packed at once.
struct Terms {
  struct Part {
    size_t first = 0, count = 0;  // of runs
    int64_t length = 0;           // terms
    int64_t leaves = 0;           // that ended before
    bool begun = false;           // the first leaf has been begun before
  };
  std::vector<LeafRun> runs;
  std::vector<Part> parts;  // at least one
};
Terms terms_in_leaves(const LeafDim& dim);

int64_t in_leaves_scratch(const Product& product, int threads);
void multiply_in_leaves(const Product& product, const Terms& terms, const Matrices<float>& at, const KernelArgs& args);

// op(b)[k,n] packed once for many small products on the calling thread, in packed_floats(n, k) floats.
int64_t packed_floats(int64_t n, int64_t k);
void pack_right(const float* b, int64_t ldb, bool transpose_b, int64_t n, int64_t k, float* packed);
// Row i of a matrix is zero but for its columns from `begin` + i to, without it, `end` + i.
struct Band {
  int64_t begin = std::numeric_limits<int32_t>::min(), end = std::numeric_limits<int32_t>::max();
};
inline constexpr int64_t kAllColumns = std::numeric_limits<int32_t>::max();
// c = op(a) b, or added to c, in the order of terms; of the packed b, which has `terms` of them, the first g.n columns
// and g.k terms. g.b is not read, and terms are left out that the band of op(a) makes zero. Of row i of c, columns from
// `wanted` + i on may stay as they are.
void multiply_packed(const Gemm& g, const float* packed, int64_t terms, const Band& band = {},
                     int64_t wanted = kAllColumns, LinesAhead* ahead = nullptr);

}  // namespace trireme::cpu
