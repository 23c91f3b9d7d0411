// Ops on elements as CUDA code: what one thread does for one element.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/op/op_def.h"

namespace trireme::cuda {

// One call: the types and places of its pieces.
struct ElementCall {
  std::string_view op;
  TypeArgs types;
  const KernelArgs* args = nullptr;  // null: every piece is whole
};

// Statements that make y0, y1, ... of x0, x1, ..., which have the wide types of the results and operands ("float" of
// f32 and bf16, "double" of f64, "i64" of integers and bool). W is that of y0. Ops that ask where an element is read
// i0, i1, ..., its coordinates in its piece. Nothing for an op that works on more than one element at a time.
std::optional<std::string> element_code(const ElementCall& call);
std::vector<std::string_view> ops_with_element_code();
// Whether the op's code asks for i0, i1, ...
bool reads_coordinates(std::string_view op);

// "float" for f32 and bf16, and so on; of the element as it is stored: "bf16".
std::string_view wide_type(DType dtype);
std::string_view stored_type(DType dtype);

// Names of functions that the code calls.
std::string element_functions();

}  // namespace trireme::cuda
