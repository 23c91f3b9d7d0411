// LAMB of a piece: for a model that is cut by hand, whose ranks have pieces of a parameter.
#pragma once

#include <functional>

#include "trireme/ops/ops.h"

namespace trireme {

// lamb_update, whose norms are those of the whole tensor: `sum_of_pieces` adds up what the ranks have of a scalar.
// Empty: `in` has the whole.
AdamUpdate lamb_update(const AdamOperands& in, const AdamOptions& options,
                       const std::function<Tensor(const Tensor&)>& sum_of_pieces);

}  // namespace trireme
