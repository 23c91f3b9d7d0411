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

// Whether the file has an optimizer's state of a parameter.
bool knows_state(const StrategyFile& file);

// Whether the file was written for exactly this graph, or does not say for which.
bool is_written_for(const StrategyFile& file, const Graph& graph);

}  // namespace trireme
