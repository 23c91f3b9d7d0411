// What two sources of tensors have in common, and where they differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/ckpt/selection.h"

namespace trireme::ckpt {

struct TensorDifference {
  std::string name;  // of the first; in the second it may be renamed
  TensorType first, second;
  // Where the shapes are the same, and the types too or both convertible (tensor/convert.h):
  int64_t elements = 0;  // that differ in value; NaNs are the same as each other
  double largest = 0;    // of |a - b|; infinite where only one is finite
  double magnitude = 0;  // the largest finite |a| of the first
};

struct Difference {
  std::vector<std::string> only_first;
  std::vector<std::string> only_second;
  std::vector<TensorDifference> types;   // other shape or type
  std::vector<TensorDifference> values;  // the same type, other elements
  int64_t equal = 0;                     // tensors

  bool none() const { return only_first.empty() && only_second.empty() && types.empty() && values.empty(); }
};

// Compares what is selected of the first, under its new names, with what of the second `only`, `except` and `state`
// leave. One tensor of each is in memory at a time. Throws as select() does for the first; a pattern need not fit in
// both.
Difference difference(const TensorSource& first, const TensorSource& second, const Selection& selection = {});

}  // namespace trireme::ckpt
