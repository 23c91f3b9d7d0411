// What the optimizer updates share. Each is elementwise over tensors of one type, any shape, and
// takes its scalars as operands, so that one compiled step serves every learning rate:
//   lr     floating scalar, the learning rate of this step
//   step   i64 scalar, the number of this step, from 1
//   scale  floating scalar that multiplies the gradient first: clipping and loss scaling need no
//          pass of their own
#pragma once

#include "trireme/ops/reference.h"

namespace trireme {

inline constexpr const char* kUpdateIsLast = "an update is not differentiated";

// The first `tensors` operands must be of one floating type; of the scalars after them, `step`
// must be i64 and the rest floating. `names` are those of the op's operands.
void check_update(std::string_view op, std::string_view names, std::span<const TensorType> in, size_t tensors);

// Raises the mistakes in Adam's attributes.
void check_adam(std::string_view op, const AdamAttrs& attrs);

// "*,*,,->*": every dimension of the tensors may be cut, scalars are whole.
ShardingRule update_rule(const TypeArgs& args);

Cost update_cost(const TypeArgs& args, double flops_per_element);

}  // namespace trireme
