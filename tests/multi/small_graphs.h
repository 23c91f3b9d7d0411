// Parts of small graphs, and what an error says.
#pragma once

#include <functional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ir/tensor.h"

namespace trireme::testing_support {

inline Tensor data_input(Graph& graph, const std::string& name, const Shape& shape, DType dtype = DType::kF32) {
  return {graph, graph.add_input(name, {dtype, shape}, Role::kData)};
}
inline Tensor parameter(Graph& graph, const std::string& name, const Shape& shape) {
  return {graph, graph.add_input(name, {DType::kF32, shape}, Role::kParameter)};
}
inline Tensor in_scope(Graph& graph, const std::string& scope, const std::function<Tensor()>& make) {
  graph.set_scope(scope);
  const Tensor out = make();
  graph.set_scope("");
  return out;
}

template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace trireme::testing_support
