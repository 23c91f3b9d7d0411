// All ops, in the order of ops/op_list.def.
#pragma once

#include <span>
#include <string_view>

#include "trireme/op/op_def.h"

namespace trireme {

std::span<const OpDef* const> all_ops();
// Null when there is none.
const OpDef* find_op(std::string_view name);
// Throws kNotFound: "no op named 'matmull'. Did you mean 'matmul'?"
const OpDef& op(std::string_view name);
// For parse_graph.
const OpBase* find_op_base(std::string_view name);

}  // namespace trireme
