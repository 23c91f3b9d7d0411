#include "trireme/backend/cpu/why_not.h"

#include <fmt/core.h>

namespace trireme::cpu {

std::string not_all_f32(const TypeArgs& args) {
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (args.in[i].dtype != DType::kF32) return operand_not_f32(args, i);
  }
  for (size_t i = 0; i < args.out.size(); ++i) {
    if (args.out[i].dtype != DType::kF32)
      return fmt::format("result {} is {}, not f32", i, to_string(args.out[i]));
  }
  return "";
}

std::string operand_not_f32(const TypeArgs& args, size_t operand) {
  const TensorType& type = args.in[operand];
  return type.dtype == DType::kF32
             ? ""
             : fmt::format("operand {} is {}, not f32", operand, to_string(type));
}

std::string operand_not_index(const TypeArgs& args, size_t operand) {
  const TensorType& type = args.in[operand];
  if (type.dtype == DType::kI32 || type.dtype == DType::kI64) return "";
  return fmt::format("operand {} is {}, not i32 or i64", operand, to_string(type));
}

}  // namespace trireme::cpu
