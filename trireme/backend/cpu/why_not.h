// Reasons why a kernel cannot run that many kernels share.
#pragma once

#include <string>

#include "trireme/op/op_def.h"

namespace trireme::cpu {

// "" when every operand and result is f32.
std::string not_all_f32(const TypeArgs& args);

// "" when the operand is f32; for kernels whose other operands are indices or flags.
std::string operand_not_f32(const TypeArgs& args, size_t operand);

// "" when the operand holds i32 or i64.
std::string operand_not_index(const TypeArgs& args, size_t operand);

}  // namespace trireme::cpu
