// What a job asks for and its compiled step does not do, in words, for the reader of the log.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/step/compile/compile.h"

namespace trireme {

// Of passes that found nothing, or not all; of a disk on which nothing lies; and over several ranks of axes of the mesh
// and optimizer parallelism that cut nothing (parallel/without_effect.h), of calls of which there is none, and of how
// sums are taken and pieces exchanged, where the compiler does the same without.
std::vector<std::string> remarks(const Compiled& step, const Parallel& parallel, int64_t ranks);

// Of a step in micro-batches that was asked to take sums over ranks once (parallel.gradient_accumulation_shard =
// false): that they are taken in the same order without it, by what the compiler does with both; "" where they are not.
std::string order_without_effect(const Compiled& step, const Parallel& parallel);

}  // namespace trireme
