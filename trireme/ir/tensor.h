// Tensor: what a model's code handles, a value of the graph that is being traced. Copies are cheap.
#pragma once

#include "trireme/ir/graph.h"

namespace trireme {

class Tensor {
 public:
  Tensor() = default;  // no tensor; tests false
  Tensor(Graph& graph, ValueId id) : graph_(&graph), id_(id) {}

  explicit operator bool() const { return graph_ != nullptr; }
  Graph& graph() const { return *graph_; }
  ValueId id() const { return id_; }
  const TensorType& type() const { return graph_->type(id_); }
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return shape().rank(); }
  int64_t size(int dim) const { return shape()[dim < 0 ? dim + rank() : dim]; }

 private:
  Graph* graph_ = nullptr;
  ValueId id_ = kNoValue;
};

}  // namespace trireme
