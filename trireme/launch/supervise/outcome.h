// What the launcher tells the user after the ranks have ended.
#pragma once

#include <vector>

#include "trireme/launch/supervise/launch_options.h"
#include "trireme/launch/supervise/worker.h"

namespace trireme::launch {

// The first failure in full with the end of that rank's log, each other one on a line.
// `interrupted` is the signal that was passed on, or 0: ranks that it ended did not fail.
LaunchResult outcome_of(const std::vector<Worker>& workers, int interrupted, int tail_lines);

}  // namespace trireme::launch
