// The public functions of the ops: what a model's code calls. Each adds a node to the graph its operands
// belong to, settles types and raises the user's mistakes; the rules of each op are in ops/<name>.cpp.
#pragma once

#include <optional>
#include <vector>

#include "trireme/op/build.h"
#include "trireme/op/structural.h"

namespace trireme {

// -- making values -----------------------------------------------------------------------------------------
Tensor full(Graph& graph, TensorType type, double value);

// -- products ----------------------------------------------------------------------------------------------
// y[*,m,n] = sum_k a[*,m,k] b[*,k,n]; b without batches serves all; transposes act on the last two dimensions.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);
// w[k,n] = sum over all leading dimensions of x[*,k] y[*,n].
Tensor linear_weight_grad(const Tensor& x, const Tensor& y);

}  // namespace trireme
