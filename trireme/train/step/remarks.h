// What a compiled step does not do of what its job asks for, in words, for who reads the log.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/step/compile.h"

namespace trireme {

// Of passes that found nothing, or not all; of a disk on which nothing lies; and over several ranks of axes of the mesh
// and optimizer parallelism that cut nothing (parallel/without_effect.h).
std::vector<std::string> remarks(const Compiled& step, const Parallel& parallel, int64_t ranks);

}  // namespace trireme
