// The warning for a job whose matrix products are slow on its device.
#pragma once

#include "trireme/backend/device.h"
#include "trireme/tensor/dtype.h"

namespace trireme {

// Says in the log that products of this type are slow there, where they are.
void log_slow_products(const Device& device, DType compute);

}  // namespace trireme
