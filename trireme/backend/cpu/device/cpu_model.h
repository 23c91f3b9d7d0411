// The CPU's model. oneDNN chooses its kernels by the model and the sizes of its caches, so the last bits of a result
// may differ between two models with the same instruction set (docs/design/numerics.md).
#pragma once

#include <string>

namespace trireme {

std::string cpu_model();  // as the CPU names itself; "" where it does not

}  // namespace trireme
