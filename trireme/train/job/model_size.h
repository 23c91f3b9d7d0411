// The least size of a configured model, computed before any of it is built.
#pragma once

#include <cstdint>

#include "trireme/train/job/config.h"

namespace trireme {

// A bound from below: the large matrices alone.
double least_parameters(const JobConfig& config);

// Throws kInvalidArgument when the parameters alone, evenly cut over all ranks, take more memory than this host has for
// those that it runs.
void check_memory(const JobConfig& config, int64_t ranks, int64_t ranks_here);

}  // namespace trireme
