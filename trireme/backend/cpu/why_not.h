// Reasons why a kernel cannot run that many kernels share.
#pragma once

#include <string>

#include "trireme/op/op_def.h"

namespace trireme::cpu {

// "" when every operand and result is f32.
std::string not_all_f32(const TypeArgs& args);

// "" when the operand is f32 or bf16. The types of an op's other floating operands and of its
// results follow from one operand's, so kernels ask about that one alone.
std::string operand_not_float(const TypeArgs& args, size_t operand);
std::string first_not_float(const TypeArgs& args);

// "" when the operand holds i32 or i64.
std::string operand_not_index(const TypeArgs& args, size_t operand);

// "" when no operand and no result is f16, for kernels of any other type.
std::string any_f16(const TypeArgs& args);

}  // namespace trireme::cpu
