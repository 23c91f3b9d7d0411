// The highest rates of this machine's cores and memory, by the loops of the instruction set in use.
#pragma once

#include "trireme/backend/peak.h"

namespace trireme {

class ThreadPool;

// On all threads of the pool. Takes about a second by default.
Peak measure_peak(ThreadPool& pool, const PeakOptions& options = {});

}  // namespace trireme
