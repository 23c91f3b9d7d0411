// What numerics = "invariant" accepts: plans whose results have the same bits however the job is cut.
//
// Every op is computed by a kernel whose bits depend on the operands' elements alone: the device says what its kernels
// promise (op/kept_bits.h). A dimension that is summed over may be cut where the kernel sums in leaves, in a power of
// two of parts, up to the number of leaves; the ranks' parts are then added in the same tree (comm/reduce.h), in one
// step. Partial sums do not flow through other ops. Everything else is refused here.
//
// The tree adds neighbours, so sums over axes are taken from the axis that cuts finest to the one that cuts coarsest:
// first micro-batches, which are parts of what a rank has, and then ranks in the order of the mesh. Ranks that share
// the samples of a micro-batch (Asks::within_micro_batches) cut finer than these; `within` are their axes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/ir/program.h"
#include "trireme/parallel/strategy/strategy.h"
#include "trireme/planner/candidates.h"

namespace trireme {

// Axes of ranks that stand after one of micro-batches where the strategy cuts a dimension by both.
Axes axes_within_micro_batches(const Strategy& strategy);

// What keeps an op that is cut so from having the same bits as uncut, as the end of "it is ..."; "" when nothing does.
// Throws kUnsupported when no kernel of the op on the device keeps its bits.
std::string why_not_invariant(const Graph& graph, const Node& node, const FactorCuts& cuts, const Mesh& mesh,
                              const Device& device, std::span<const int> within = {});

// Throws kUnsupported naming the op, the cut, and what would be right.
void require_invariant(const Graph& graph, const Strategy& strategy, const Device& device);
// A sum over ranks that is made in more than one step, or in another order than the mesh has ranks, as "the sum over
// ranks of a value of ..."; "" where there is none.
std::string why_not_invariant(const Program& program, const Device& device, std::span<const int> within = {});
// A search takes nothing else. The device outlives it.
void allow_invariant_alone(CandidateOptions& options, const Device& device);
// Throws kUnsupported where there is one.
void require_invariant(const Program& program, const Device& device, std::span<const int> within = {});

}  // namespace trireme
