// What all collectives share.
#pragma once

#include <utility>

#include "trireme/op/op_def.h"

namespace trireme {

// Throws kInvalidArgument for an operand whose type is not sent.
inline void check_sendable(const char* op, std::span<const TensorType> types) {
  for (const TensorType& type : types) {
    require(type.dtype != DType::kBool, "{}: a bool tensor cannot be sent; cast it to u8 first (operand {})", op,
            to_string(type));
  }
}

// Bytes that pass through memory; what the links cost is the planner's to know.
inline Cost cost_of_collective(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

// The record of a collective with attributes A.
template <class A>
OpDef collective_op(std::string_view name, std::string_view doc, std::string_view inputs, InferFn* infer, GradFn* grad,
                    std::vector<Example> (*examples)(), std::vector<std::pair<int, int>> may_overwrite = {}) {
  return {{name, &Attrs::parse<A>},
          doc,
          inputs,
          infer,
          grad,
          Facet<ShardFn>::none("works on the pieces of ranks"),
          cost_of_collective,
          Facet<KernelFn>::none("the executor runs it, which knows the rank's coordinates"),
          {.collective = true},
          std::move(may_overwrite),
          examples};
}

}  // namespace trireme
