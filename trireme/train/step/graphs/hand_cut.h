// What a training step of a model that is cut by hand needs besides the model's own code: means over ranks, and sums of
// gradients over the ranks that hold the same piece of a parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/ir/tensor.h"
#include "trireme/parallel/parallel.h"

namespace trireme {

// A part of the batch: shapes have the *whole* batch in front.
struct BatchField {
  std::string name;
  TensorType type;
  Piece piece = {};  // of a rank's part, for a model that is cut by hand: how the parts of all lie (ir/graph.h)
};

// The cut of a model whose code works on the pieces of ranks, with collectives of its own (docs/guide/04): the batch is
// a rank's, and what is trained, and reported as the loss, is the mean of all ranks' losses. The gradient of a
// parameter is summed over the ranks that hold the same of it.
struct HandCut {
  std::optional<Mesh> mesh = {};          // of the ranks; none: the model's code is of one device
  std::vector<PieceRule> layerwise = {};  // parameters of which each rank has a piece, or values of its own
};

// A rank's part of a batch, as parallel.dataset cuts it, for a model that is cut by hand.
std::vector<BatchField> batch_of_rank(const std::vector<BatchField>& batch, const Parallel& parallel, int64_t ranks);

// How a model is cut by hand (Parallel::by_hand), the batch becoming a rank's; none where it is not.
HandCut cut_by_hand(const Parallel& parallel, int64_t ranks, std::vector<BatchField>& batch);

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
