// How fast the slowest crew of a pipeline can be at best, over all cuts of a chain of parts into stages, ignoring
// memory.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// Equal parts that follow each other: what each takes of a micro-batch.
struct PassRun {
  int64_t pass = 0, count = 0;
};

// A lower bound on the slowest crew of any cut that is looked at (planner/outer/stage_problem.h). With one stage per
// crew it is the least bottleneck, found by filling one stage after the other: halving the limit, or raising it to what
// the next part needs. With several stages it is that of the even cuts. `chain`: the parts of the model, in their
// order; `chunks`: the stages of a crew. 0 if there are fewer parts than stages.
int64_t least_slowest(const std::vector<PassRun>& chain, int64_t crews, int64_t chunks);

}  // namespace trireme
