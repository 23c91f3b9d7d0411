// The CPU's model. oneDNN chooses its kernels by the model and the sizes of its caches, so the last bits of a result
// may differ between two models with the same instruction set (docs/design/numerics.md).
#pragma once

#include <string>
#include <vector>

namespace trireme {

std::string cpu_model();  // as the CPU names itself; "" where it does not

// What to tell of ranks with these CPUs; "" if they are all of one model.
std::string unlike_cpus(const std::vector<std::string>& of_ranks);

}  // namespace trireme
