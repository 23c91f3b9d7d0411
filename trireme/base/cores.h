// The cores that this process may run on: those of the host, or fewer in a container, under taskset or as a rank that
// its launcher has pinned. C++'s hardware_concurrency may count the host's, whatever this process may use.
#pragma once

#include <vector>

namespace trireme {

// The processing units that the calling thread may run on, by the system's numbers, in order; never none.
std::vector<int> allowed_cores();

}  // namespace trireme
