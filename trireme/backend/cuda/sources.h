// The kernels that are written in CUDA, as text for the compiler, for elements of a type.
#pragma once

#include <string>

#include "trireme/tensor/dtype.h"

namespace trireme::cuda {

std::string row_source(DType dtype);        // rows.cpp
std::string reduction_source(DType dtype);  // reductions.cpp
std::string table_source(DType dtype);      // tables.cpp
std::string score_source(DType dtype);      // attention_products.cpp
std::string attention_source(DType dtype, int64_t head_size);
std::string move_source();  // stream.cpp

}  // namespace trireme::cuda
