// The programs of a case's crews, as the compiler makes them of its graph once that is cut.
#pragma once

#include <string_view>
#include <vector>

#include "tests/equivalence/case.h"
#include "trireme/pass/passes.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme::equivalence {

// Of the step's graph, or the evaluation's, before passes. `may_repeat`: of fewer micro-batches where a pipeline's
// others repeat them.
CrewPrograms crew_programs(const Case& test, const Graph& graph, Program whole, bool may_repeat);

struct Programs {
  std::vector<Program> crews;
  int64_t repeated = 0;  // micro-batches that were not compiled, but are as others
};
// After the passes, where the case has them; each program is verified on its way.
Programs programs_of(const Case& test, const Graph& graph, const Program& whole, const PassOptions& passes);

// Throws kInternal with the first of the findings, if there are any.
void refuse(const std::vector<std::string>& findings, std::string_view what);

}  // namespace trireme::equivalence
