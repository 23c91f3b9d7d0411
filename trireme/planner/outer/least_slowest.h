// How fast the slowest stage of a pipeline can be at best, over all cuts of a chain of parts into stages, ignoring
// memory.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// Equal parts that follow each other: what each takes of a micro-batch.
struct PassRun {
  int64_t pass = 0, count = 0;
  int64_t forward = 0;  // of `pass`
};

// The least that the slowest of so many stages takes over all cuts, found by filling one stage after the other: halving
// the limit, or raising it to what the next part needs. `chain`: the parts of the model, in their order. 0 if there are
// fewer parts than stages.
int64_t least_slowest(const std::vector<PassRun>& chain, int64_t stages);

}  // namespace trireme
