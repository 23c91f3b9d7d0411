// Applies a strategy that was written down (strategy_file) to another graph of the same model: a training step with
// different clipping or another optimizer, the evaluation, the model alone.
#pragma once

#include "trireme/parallel/parallel.h"

namespace trireme {

// What the file says of inputs and nodes that the graph has too is asked, by their names; the rest follows. Throws
// kInvalidArgument where the graph is a training step of another model, saying what differs. A graph that updates
// nothing has what it has of the step. Where the file knows no state of a parameter, because its optimizer had none,
// the state lies as `parallel.optimizer` says.
Strategy reuse_strategy(const StrategyFile& file, const Graph& graph, const Parallel& parallel,
                        const SemiAutoOptions& options);

// Whether the file says where the optimizer's state of a parameter lies.
bool lays_out_state(const StrategyFile& file);

// Throws kInvalidArgument with the line's number where a file that was saved of a training step of this graph's model
// does not say whose state an input is. Older versions did not, and names do not tell.
void check_states(const StrategyFile& file, const Graph& graph);

// Whether the file was written for exactly this graph, or does not say for which.
bool is_written_for(const StrategyFile& file, const Graph& graph);

}  // namespace trireme
