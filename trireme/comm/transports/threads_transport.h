// Messages between ranks that are threads of one process.
#pragma once

#include <memory>

#include "trireme/comm/comm.h"
#include "trireme/comm/engine/transport.h"

namespace trireme::comm {

// Needs a store from memory_store(); throws kInvalidArgument for another.
std::unique_ptr<Transport> threads_transport(const WorldOptions& options);

}  // namespace trireme::comm
