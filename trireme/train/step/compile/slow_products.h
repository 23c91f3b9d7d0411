// The warning for a job whose matrix products are slow on this machine.
#pragma once

#include "trireme/tensor/dtype.h"

namespace trireme {

// Says in the log that products of this type are slow on this machine, where they are.
void log_slow_products(DType compute);

}  // namespace trireme
