#include "trireme/comm/backends.h"

#include "trireme/comm/p2p_group.h"
#include "trireme/comm/threads_transport.h"

namespace trireme::comm {

Backend message_backend(std::unique_ptr<Transport> transport) {
  return {std::move(transport), [](Engine& engine, GroupBase::Members members) {
            const int channel = engine.transport().open(members.world_ranks);
            return std::make_unique<P2pGroup>(engine, std::move(members), channel);
          }};
}

Backend threads_backend(const WorldOptions& options) {
  return message_backend(threads_transport(options));
}

}  // namespace trireme::comm
