// The model of the CPU. Kernels of the same instruction set may take other steps on another model, since oneDNN chooses
// by the model and the sizes of its caches, so that last bits differ (docs/design/numerics.md).
#pragma once

#include <string>
#include <vector>

namespace trireme {

std::string cpu_model();  // as the CPU names itself; "" where it does not

// What to tell of ranks with these CPUs; "" if they are all of one model.
std::string unlike_cpus(const std::vector<std::string>& of_ranks);

}  // namespace trireme
