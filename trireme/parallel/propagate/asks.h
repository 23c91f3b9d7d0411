// Asks: what is asked about some tensors and ops of a graph, on its mesh, before propagation decides the rest.
// parallel/semi_auto.cpp makes it from what a user writes (parallel/asked/asked.h).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

struct Asks {
  // Of graph.inputs(). Nothing: the input is cut as the first op that reads it, or a cast of it, cuts it, which costs
  // no bytes.
  std::vector<std::optional<Layout>> inputs;
  // Cuts of single nodes.
  std::map<NodeId, FactorCuts> nodes;
  // Readers find these values in this layout instead of the one they are made in. A parameter's update (Phase::kUpdate)
  // reads the parameter as it is stored.
  std::map<ValueId, Layout> seen_as;
  // Whether partial sums may flow through linear ops. Where they may not they are reduced before anything reads them:
  // (a + b) summed over ranks has other bits than the sum of a over ranks and that of b.
  bool sums_flow = true;
  // Nodes that read what another stage of a pipeline makes: sums over micro-batches do not flow through them, so that
  // what goes from stage to stage is one sum instead of a term for each micro-batch.
  std::set<NodeId> across_stages;
  // Nodes that take their operands in the layouts in which these come; an operand is made whole only where sums must be
  // taken first (parallel/strategy/vouched.h). Their results are assumed to lie as given here or, if nothing is given,
  // to be cut by the same axes.
  std::map<NodeId, std::vector<Layout>> as_it_comes;
  // Nodes whose sums over ranks are left out: each rank continues with its own term. If the flag is true, the term is
  // multiplied by the number of ranks, which turns the mean of a sum into the mean of the rank's own part. Gradients
  // are those of what the ranks then compute, and the new value of an input is the mean over the ranks
  // (parallel/propagate/unsummed_values.h).
  std::map<NodeId, bool> unsummed;
  // Axes of ranks that are less significant than micro-batches where both cut a dimension. Ranks along them share the
  // weights of some op (experts), and exchange samples there: those of one micro-batch must lie side by side, or ranks
  // would need parts of several micro-batches at once.
  std::vector<int> within_micro_batches;
  bool says_why = true;  // the strategy says of each input and node why it is cut so
};

}  // namespace trireme
