// Products of bf16 matrices by the tiles of AMX, which multiply pairs of bf16 and add in f32, with results of bf16 or
// f32. The sums of some hundred terms at a time are added to those before, in f32, and rounded once if at all. So an
// element's bits depend only on the number of terms: products may be cut by rows and columns as threads want it, and
// products of some rows at a time with a matrix that is packed once have the same bits.
#pragma once

#include <cstddef>
#include <string>

#include "trireme/backend/cpu/products/product.h"

namespace trireme::cpu {

// "" where tiles can be taken and pay; otherwise the reason.
std::string why_no_bf16_tiles(const Product& product);
// C is Bf16 or float.
template <class C>
int64_t bf16_tiles_scratch(const Product& product, int threads);
template <class C>
void multiply_in_bf16_tiles(const Product& product, const Matrices<Bf16, C>& at, const KernelArgs& args);

// Products c[m,n] = a[m,k] b, some rows at a time, with a matrix b that is packed whole, in so many parts, in any order
// and on any thread. It stays in the second-level cache, or does not.
bool tiled_matrix_stays(int64_t n, int64_t k);
int64_t tiled_matrix_bytes(int64_t n, int64_t k);
int64_t tiled_matrix_parts(int64_t n);
void pack_tiled_matrix_part(const Product& product, const Bf16* b, int64_t part, std::byte* matrix);

// A product of as many rows as it says; `room` is what they take, and lies on a cache line, as the packed matrix does.
// With `more_rows` those of the next block follow in a, and are brought nearer.
int64_t tiled_rows_bytes(int64_t rows, int64_t n, int64_t k);
void multiply_by_tiled_matrix(const Product& product, const Bf16* a, const std::byte* matrix, Bf16* c, std::byte* room,
                              bool more_rows);

}  // namespace trireme::cpu
