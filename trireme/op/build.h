// Adding a node to the graph that is being traced: infers the result types and adds context to errors.
#pragma once

#include <initializer_list>

#include "trireme/op/op_def.h"

namespace trireme {

// One Tensor per result. Throws what the op's infer throws, with the name scope added.
std::vector<Tensor> apply(const OpDef& op, std::span<const Tensor> in, Attrs attrs = {});
std::vector<Tensor> apply(const OpDef& op, std::initializer_list<Tensor> in, Attrs attrs = {});
// For ops with one result.
Tensor apply1(const OpDef& op, std::initializer_list<Tensor> in, Attrs attrs = {});

// Types of the results. Throws kInvalidArgument for another number of operands than the op takes, and what its infer
// throws.
std::vector<TensorType> result_types(const OpDef& op, std::span<const TensorType> in, const Attrs& attrs);

// A type as a collective of the compiler's moves it: bools as bytes, which a model's own code has to cast.
inline TensorType as_moved(TensorType type) {
  if (type.dtype == DType::kBool) type.dtype = DType::kU8;
  return type;
}

// Adds what is wrong with phases: nodes that read what a later one makes.
void check_phases(const Graph& graph, std::vector<std::string>& out);

// What is wrong with ops, arities and types: everything check_structure finds, and every node whose types are
// not those its op infers, and gradients and updates of another shape than what they are of. Empty when sound.
std::vector<std::string> verify(const Graph& graph);

}  // namespace trireme
