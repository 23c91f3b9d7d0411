// What a training step of a model that is cut by hand needs besides the model's own code: means over ranks, and sums of
// gradients over the ranks that hold the same of a parameter.
#pragma once

#include <vector>

#include "trireme/ir/tensor.h"
#include "trireme/plan/parallel.h"
#include "trireme/train/step/step.h"

namespace trireme {

// For a model that is cut by hand (Parallel::by_hand), what a rank's graph is made with: its part of the batch, the
// mesh and the layerwise parameters.
void cut_by_hand(const Parallel& parallel, int64_t ranks, std::vector<BatchField>& batch, StepOptions& options);

// x, a scalar, summed over all ranks and divided by `parts`.
Tensor sum_over_ranks(const Tensor& x, const Mesh& mesh, double parts);

// Marks the parameters that the rules name. Throws kInvalidArgument for a rule that names none.
void mark_layerwise(const std::vector<Tensor>& parameters, const std::vector<PieceRule>& rules);

// The gradient of a parameter over all ranks that hold the same piece of it.
Tensor sum_over_holders(const Tensor& gradient, const Tensor& parameter, const Mesh& mesh);
// The mean, over the ranks that hold the same piece of a module's buffer, of its next value.
Tensor mean_over_holders(const Tensor& value, const Tensor& buffer, const Mesh& mesh);
// The sum over all pieces of a parameter, each counted once, of a scalar that each rank has of its own.
Tensor sum_over_pieces(const Tensor& x, const Tensor& parameter, const Mesh& mesh);

}  // namespace trireme
