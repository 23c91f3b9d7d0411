// Which results of a call may be written over which operands.
#pragma once

#include <utility>
#include <vector>

#include "trireme/op/op_def.h"

namespace trireme {

// OpDef::may_overwrite, for a call with so many operands and results: of those that a call may leave out it says what holds
// where they are there.
inline std::vector<std::pair<int, int>> overwrites_of(const OpDef& op, size_t operands, size_t results) {
  std::vector<std::pair<int, int>> out;
  for (const auto& [result, operand] : op.may_overwrite) {
    if (static_cast<size_t>(result) < results && static_cast<size_t>(operand) < operands) out.emplace_back(result, operand);
  }
  return out;
}

}  // namespace trireme
