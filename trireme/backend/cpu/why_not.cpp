#include "trireme/backend/cpu/why_not.h"

#include <fmt/core.h>

#include <algorithm>

namespace trireme::cpu {

std::string not_all_f32(const TypeArgs& args) {
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (args.in[i].dtype != DType::kF32) return fmt::format("operand {} is {}, not f32", i, to_string(args.in[i]));
  }
  for (size_t i = 0; i < args.out.size(); ++i) {
    if (args.out[i].dtype != DType::kF32) return fmt::format("result {} is {}, not f32", i, to_string(args.out[i]));
  }
  return "";
}

std::string operand_not_float(const TypeArgs& args, size_t operand) {
  const TensorType& type = args.in[operand];
  if (type.dtype == DType::kF32 || type.dtype == DType::kBF16) return "";
  return fmt::format("operand {} is {}, not f32 or bf16", operand, to_string(type));
}

std::string first_not_float(const TypeArgs& args) {
  return operand_not_float(args, 0);
}

std::string operand_not_index(const TypeArgs& args, size_t operand) {
  const TensorType& type = args.in[operand];
  if (type.dtype == DType::kI32 || type.dtype == DType::kI64) return "";
  return fmt::format("operand {} is {}, not i32 or i64", operand, to_string(type));
}

std::string any_f16(const TypeArgs& args) {
  const auto is_f16 = [](const TensorType& type) { return type.dtype == DType::kF16; };
  const bool any = std::ranges::any_of(args.in, is_f16) || std::ranges::any_of(args.out, is_f16);
  return any ? "f16 is not computed with" : "";
}

}  // namespace trireme::cpu
