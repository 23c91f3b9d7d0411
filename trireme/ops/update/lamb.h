// LAMB for a model that is cut by hand, whose ranks have pieces of a parameter; and LAMB with norms that do not depend
// on how a parameter is cut.
#pragma once

#include <functional>

#include "trireme/ops/ops.h"

namespace trireme {

struct LambNorms {
  // Of the whole tensor: adds up what the ranks have of their pieces. Empty: the operands are the whole.
  std::function<Tensor(const Tensor&)> sum_of_pieces = {};
  bool exact = false;  // by exact_square_sum, which takes f32
};
AdamUpdate lamb_update(const AdamOperands& in, const AdamOptions& options, const LambNorms& norms);

}  // namespace trireme
