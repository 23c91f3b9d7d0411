// What all collectives share.
#pragma once

#include <utility>
#include <vector>

#include "trireme/base/said.h"
#include "trireme/op/op_def.h"

namespace trireme {

// Throws kInvalidArgument for an operand whose type is not sent.
inline void check_sendable(const char* op, std::span<const TensorType> types) {
  for (const TensorType& type : types) {
    require(type.dtype != DType::kBool, "{}: a bool tensor cannot be sent; cast it to u8 first (operand {})", op,
            said(type));
  }
}

// Bytes that pass through memory; what the links cost is the planner's to know.
inline Cost cost_of_collective(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

// Ops of any number of operands may write each result over its operand.
inline std::vector<std::pair<int, int>> each_over_its_operand(const TypeArgs& args) {
  std::vector<std::pair<int, int>> out;
  for (int i = 0; i < static_cast<int>(args.out.size()); ++i) out.emplace_back(i, i);
  return out;
}

struct CollectiveOp {
  std::string_view name;
  std::string_view doc;
  std::string_view inputs;
  InferFn* infer = nullptr;
  GradFn* grad = nullptr;
  std::vector<Example> (*examples)() = nullptr;
  Collective does = {};  // without its groups
  std::vector<std::pair<int, int>> (*overwrites)(const TypeArgs& types) = nullptr;
};

// The record of a collective with attributes A, which have `axes`, `ranks` and `size`.
template <class A>
OpDef collective_op(CollectiveOp op) {
  op.does.groups = read_groups<A>;
  return {
      {op.name, &Attrs::parse<A>},
      {
          .doc = op.doc,
          .inputs = op.inputs,
          .infer = op.infer,
          .grad = op.grad,
          .shard = Facet<ShardFn>::none("works on the pieces of ranks"),
          .cost = cost_of_collective,
          .kernel = Facet<KernelFn>::none("the executor runs it, which knows the rank's coordinates"),
          .examples = op.examples,
          .collective = op.does,
          .overwrites = op.overwrites,
      },
  };
}

}  // namespace trireme
