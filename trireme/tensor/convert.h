// Floating-point elements from one type to another.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/tensor/view.h"

namespace trireme {

// IEEE 754 binary16, for storing only. `to_f16` rounds to nearest even; beyond 65,504 it gives an infinity, and NaN
// stays NaN.
uint16_t to_f16(float x);
float from_f16(uint16_t bits);  // exact

// f32, f64, f16 and bf16.
bool is_convertible(DType dtype);

// Writes the elements of `from` to `to`, of the same shape, in the element type of `to`: rounded to nearest even, where
// that has fewer digits. f64 goes to f16 and bf16 by way of f32. Both are the host's. Throws kUnsupported for other
// types than is_convertible, unless both are the same.
void convert(const View& from, const View& to);

// How many elements of a converted tensor are infinite where those it was made of are finite: beyond what the type
// reaches.
int64_t overflowed(const View& from, const View& to);

}  // namespace trireme
