// Tensors of any element type filled with one number.
#pragma once

#include <array>
#include <cstddef>

#include "trireme/op/op_def.h"

namespace trireme::cpu {

// The bytes of one element that holds the number; the rest of the array is unused.
using Element = std::array<std::byte, 8>;
Element element_of(DType dtype, double value);

// Every element of `y`.
void fill(const KernelArgs& args, const View& y, double value);

}  // namespace trireme::cpu
