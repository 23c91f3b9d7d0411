// The cores that this process may run on: those of the host, or fewer in a container, under taskset or as a rank that
// its launcher has pinned. C++'s hardware_concurrency may count the host's, whatever this process may use.
#pragma once

#include <vector>

namespace trireme {

// Processing units by the system's numbers, in order.
using Cores = std::vector<int>;

// Those that the calling thread may run on; never none.
Cores allowed_cores();
// Has the calling thread run on these alone. False where the system does not allow it: it goes on as it was.
bool run_on(const Cores& cores);

}  // namespace trireme
