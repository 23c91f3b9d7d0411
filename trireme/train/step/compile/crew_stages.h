// The stages of a graph in the pipeline that it is compiled for, and the order in which they run.
#pragma once

#include <cstdint>

#include "trireme/ir/graph.h"
#include "trireme/parallel/parallel.h"

namespace trireme {

// Those that are given, if any are: a graph that is compiled beside a step has the step's. Without a pipeline there are
// no others.
ScopeStages stages_for(const Graph& graph, const Parallel& parallel, const ScopeStages& given);

// Throws kInvalidArgument where those of a strategy that was written down leave a stage of the pipeline nothing to do;
// says in the log where there is no pipeline for them.
void check_written_stages(const Graph& graph, const ScopeStages& stages, const Parallel& parallel);

// The order of work on the graph's micro-batches, each of several parts (copies, chunks of positions): of forward
// passes alone where it trains nothing, for which one micro-batch is enough.
Timetable timetable_for(const Graph& graph, const Parallel& parallel, int64_t parts);

}  // namespace trireme
