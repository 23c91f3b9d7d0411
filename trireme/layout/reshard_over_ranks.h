// The part of plan_reshard that moves axes of ranks; reshard_micro_batch.cpp puts axes of micro-batches around it.
#pragma once

#include <vector>

#include "trireme/layout/reshard_step.h"
#include "trireme/mesh/mesh.h"
#include "trireme/tensor/shape.h"

namespace trireme::detail {

// plan_reshard where no axis of micro-batches moves.
std::vector<ReshardStep> plan_over_ranks(const Layout& from, const Layout& to, const TensorType& whole,
                                         const Mesh& mesh, const ReshardCosts& costs);
// Throws kInvalidArgument when a layout does not fit, or a whole value would have to be taken apart into a sum.
void check_ends(const Layout& from, const Layout& to, const TensorType& whole, const Mesh& mesh);

}  // namespace trireme::detail
