// The stages of a graph in the pipeline that it is compiled for, and when each has its turn.
#pragma once

#include <cstdint>

#include "trireme/train/step/compile.h"

namespace trireme {

// Those of the options, where they are given: a graph that is compiled beside a step has the step's. Without a pipeline
// there are none.
ScopeStages stages_for(const Graph& graph, const CompileOptions& options);

// Throws kInvalidArgument where those of a strategy that was written down leave a stage of the pipeline nothing to do;
// says in the log where there is no pipeline for them.
void check_written_stages(const Graph& graph, const ScopeStages& stages, const CompileOptions& options);

// The order of work on the graph's micro-batches, each of several parts (copies, chunks of positions): of forward
// passes alone where it trains nothing, for which one micro-batch is enough.
Timetable timetable_for(const Graph& graph, const Parallel& parallel, int64_t parts);

}  // namespace trireme
