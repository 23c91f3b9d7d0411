// Products of blocks of rows with one f32 matrix, which is packed once, as a whole, for all of them. As in
// blocked_product.h, an element's bits depend only on the number of terms.
#pragma once

#include "trireme/backend/cpu/products/gemm.h"

namespace trireme::cpu {

// What b[k,n] takes when it is packed, and what the rows of a block take, whatever the instruction set.
int64_t panels_floats(int64_t n, int64_t k);
int64_t panel_rows_floats(int64_t rows, int64_t k);

// b is packed in so many parts, in any order and on any thread.
int64_t panel_parts(int64_t n, int64_t k);
// `g` says where b lies and how; its other matrices are not looked at.
void pack_panel_part(const Gemm& g, int64_t part, float* panels);

// c[m,n] = a[m,k] b, where a is not transposed, alpha is 1 and beta 0. `panels` is b, `room` what the rows take. With
// `more_rows` those of the next block follow in a, and are brought nearer.
void multiply_by_panels(const Gemm& g, const float* panels, float* room, bool more_rows = false);

}  // namespace trireme::cpu
