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

// No crew of any cut that is looked at (planner/outer/stage_problem.h) is the slowest with less: of one stage a crew
// the least bottleneck, by filling one stage after the other, halving what they may take, or letting them take what the
// next part needs; of several that of the even cuts. `chain`: the parts of the model, in their order; `chunks`: a
// crew's stages. 0 where there are fewer parts than stages.
int64_t least_slowest(const std::vector<PassRun>& chain, int64_t crews, int64_t chunks);

}  // namespace trireme
