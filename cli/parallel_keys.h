// What commands that train nothing take of [parallel].
#pragma once

#include <string>
#include <vector>

#include "trireme/train/job/config.h"

namespace trireme::cli {

// Throws kInvalidArgument, before any rank starts, for keys among `set` ("parallel.zero=1") that say how a model is
// trained, and where so many ranks cannot share the model as the job's section [parallel] says.
void check_parallel_keys(const std::string& command, const std::vector<std::string>& set, const JobConfig& job,
                         int64_t ranks);

}  // namespace trireme::cli
