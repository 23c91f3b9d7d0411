// Which results of a call may overwrite which operands.
#pragma once

#include <utility>
#include <vector>

#include "trireme/op/op_def.h"

namespace trireme {

// OpDef::may_overwrite, for a call on these types: of operands and results that a call may leave out it says what holds
// where there are any.
inline std::vector<std::pair<int, int>> overwrites_of(const OpDef& op, const TypeArgs& types) {
  if (op.overwrites != nullptr) return op.overwrites(types);
  std::vector<std::pair<int, int>> out;
  for (const auto& [result, operand] : op.may_overwrite) {
    if (static_cast<size_t>(result) < types.out.size() && static_cast<size_t>(operand) < types.in.size())
      out.emplace_back(result, operand);
  }
  return out;
}

}  // namespace trireme
