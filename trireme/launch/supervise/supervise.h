// Starts the ranks of a job on this host as processes, serves their store, passes signals on, and
// when one fails ends the others and reports which failed first and why. No rank outlives the call, or the launcher.
#pragma once

#include "trireme/launch/supervise/launch_options.h"

namespace trireme::launch {

// SIGINT, SIGTERM and SIGHUP are passed to the ranks once, so that they can finish a step and save; the second one ends
// them. SIGUSR1 is passed to one of the ranks that save when it comes (rank_info.h), as soon as there is one: all save
// after the same step. Call it from a thread that stays: the ranks die with it.
LaunchResult supervise(const LaunchOptions& options);

}  // namespace trireme::launch
