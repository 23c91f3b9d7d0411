// The plain executor: every node in turn, by its reference kernel, on whole tensors in one process.
// All plans and backends are compared with it. With `f64`, every floating value is computed in double, whatever the
// graph says; that is the oracle of error bounds.
#pragma once

#include <map>
#include <string>

#include "trireme/op/op_def.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme {

struct InterpretOptions {
  bool f64 = false;
};

// Inputs by name, outputs by name. Under `f64` floating inputs may be given in any floating type
// and floating outputs are f64. Throws kInvalidArgument for missing or mistyped inputs,
// kUnsupported for ops without a kernel.
std::map<std::string, HostTensor> interpret(const Graph& graph, const std::map<std::string, HostTensor>& inputs,
                                            const InterpretOptions& options = {});

// Runs an op's reference kernel once; `results` are the types it writes.
std::vector<HostTensor> run_reference(const OpDef& op, const Attrs& attrs, std::span<const HostTensor* const> operands,
                                      std::span<const TensorType> results);

// The type with f64 in place of any other floating type, and a tensor in it.
TensorType widened(TensorType type);
HostTensor widened(const HostTensor& tensor);

}  // namespace trireme
