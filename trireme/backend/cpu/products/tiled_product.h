// Products of f32 or bf16 matrices on the calling thread by the tiles of AMX, which multiply bf16 and add in f32.
//
// A number of f32 is the sum of three bf16: it rounded, the first digits of what is missing, and the rest. Of the nine
// products of two numbers' parts, six are computed; the other three are below 2^-23 of the whole each. So a sum is as
// near to the exact one as that of multiply-adds in f32, and takes six products by an instruction that is 13 times as
// fast (Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations, 2019). Numbers below 2^-102 keep fewer digits, as there are no parts below 2^-126.
//
// An element's bits depend only on the number of terms.
#pragma once

#include <cstddef>

#include "trireme/backend/cpu/products/gemm.h"

namespace trireme::cpu {

// Whether `bytes` are room enough for packed parts of a product of f32 matrices of these sizes to be worth it.
bool tiles_fit(int64_t m, int64_t n, int64_t k, int64_t bytes);
// alpha is 1, and beta 0 or 1. `room` lies on a cache line.
void multiply_in_tiles(const Gemm& g, std::byte* room, int64_t bytes);

// The same where many blocks of rows are multiplied with one matrix b, which is packed before, whole, in parts that
// threads may share: as in panel_product.h.
int64_t tiled_panels_bytes(int64_t n, int64_t k);
int64_t tiled_panel_rows_bytes(int64_t rows, int64_t k);
int64_t tiled_panel_parts(int64_t n, int64_t k);
void pack_tiled_panel_part(const Gemm& g, int64_t part, std::byte* panels);
// `g.m` rows of a, which does not lie transposed, with beta 0.
void multiply_by_tiled_panels(const Gemm& g, const std::byte* panels, std::byte* room);

}  // namespace trireme::cpu
