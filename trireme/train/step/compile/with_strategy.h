// What compiling begins with: the rates that a job goes by, and the strategy by which its graph is cut.
#pragma once

#include "trireme/train/step/compile/compile.h"

namespace trireme {

// Of a named machine, else measured, here or by an earlier run.
void take_rates(const CompileOptions& options, const Mesh& mesh, Compiled& out);

// A graph that the compiler cuts, with its strategy, and with what was found in words where there is a search.
Compiled with_strategy(Graph graph, const CompileOptions& options);

}  // namespace trireme
