// The transports that a World can use, each with its groups.
#pragma once

#include <functional>
#include <memory>

#include "trireme/comm/engine/group.h"

namespace trireme::comm {

using GroupMaker = std::function<std::unique_ptr<GroupBase>(Engine&, GroupBase::Members)>;

struct Backend {
  std::unique_ptr<Transport> transport;
  GroupMaker make_group;
};

Backend threads_backend(const WorldOptions& options);
Backend shm_backend(const WorldOptions& options);
bool has_ucx();
// Throws kUnsupported in a build without UCX.
Backend ucx_backend(const WorldOptions& options, bool on_one_host);
// Rank, size and crowdedness come from MPI and are set in `engine`. Throws kUnsupported in a build
// without MPI.
Backend mpi_backend(const WorldOptions& options, EngineOptions& engine);

// Groups that send messages over a transport.
Backend message_backend(std::unique_ptr<Transport> transport);

}  // namespace trireme::comm
