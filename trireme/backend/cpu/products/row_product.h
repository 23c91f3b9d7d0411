// Products of one row with a matrix. The whole matrix is read for a single row, so memory bandwidth is the limit.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/backend/cpu/products/product.h"

namespace trireme::cpu {

// "" where there is one row, and its result is of less than a MiB: larger ones are among what pass/fuse_rows joins with
// what follows, by kernels of their own.
std::string not_one_row(const Product& product);
// Of bf16, whose row and result are in f32 meanwhile.
int64_t row_product_scratch(const Product& product);
template <class T>
void multiply_row(const Product& product, const Matrices<T>& at, const KernelArgs& args);

}  // namespace trireme::cpu
