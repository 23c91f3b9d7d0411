// What the bytes of a crew's ranks are, at their fullest moment.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/planner/outer/stage_problem.h"

namespace trireme {

using ByteKinds = std::vector<std::pair<std::string, int64_t>>;  // what, and how much of it

// Of each crew, for stages that begin at these parts; they add up to what bytes_of_crews says. What lies beside the
// device does not count.
std::vector<ByteKinds> kinds_of_crews(const StageProblem& problem, const std::vector<int64_t>& begins);

}  // namespace trireme
