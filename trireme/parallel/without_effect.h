// Finds settings of a job's cuts that change nothing, to warn about them. A job that repeats its work on several ranks,
// or ignores a setting, gives no wrong answer, so nobody would notice.
#pragma once

#include <string>
#include <vector>

#include "trireme/parallel/parallel.h"

namespace trireme {

// A sentence each: axes of the mesh that cut nothing, an optimizer parallelism that slices nothing, its exceptions that
// name nothing, and parameters that no group of OptimizerParallel::shard_size ranks shares.
std::vector<std::string> without_effect(const Graph& graph, const Strategy& strategy,
                                        const OptimizerParallel& optimizer);

// What an optimizer parallelism that slices other parameters leaves whole, and why, in a sentence: how many parameters
// of how many bytes, of those whose gradients are summed over ranks; "": none.
std::string stays_whole(const Graph& graph, const Strategy& strategy, const OptimizerParallel& optimizer);

}  // namespace trireme
