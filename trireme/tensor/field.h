// Fields of a batch: the named tensors that each sample has. FieldSpec is what data give, FieldNeed what a model takes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/tensor/shape.h"

namespace trireme {

struct FieldSpec {
  std::string name;
  TensorType sample;  // of one sample, without the batch dimension
  friend bool operator==(const FieldSpec&, const FieldSpec&) = default;
};

// A field that a model or its loss reads. A size of 0 is as the data have it.
struct FieldNeed {
  std::string name;
  DType dtype = DType::kF32;
  Shape sizes = {};        // of a sample
  int64_t below = 0;       // whole numbers in it are from 0 to below this; 0: any
  bool any_shape = false;  // any sizes of any number of dimensions; `sizes` are those that data are made with
  int positions = -1;      // the dimension of a sample that context parallelism cuts; -1: it has none
};

std::string to_string(std::span<const FieldSpec> fields);  // "image f32[28,28,1], label i32[]"
std::string to_string(std::span<const FieldNeed> needs);   // "tokens i32[?], targets i32[?]"

// Whether the data have what the model takes, in its order: the same names, unless there are two fields, which are the
// input and the target whatever they are called.
bool meets(std::span<const FieldSpec> fields, std::span<const FieldNeed> needs);

}  // namespace trireme
