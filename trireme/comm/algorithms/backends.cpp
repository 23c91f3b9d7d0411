#include "trireme/comm/algorithms/backends.h"

#include "trireme/comm/algorithms/p2p_group.h"

namespace trireme::comm {

Backend message_backend(std::unique_ptr<Transport> transport) {
  return {std::move(transport), [](Engine& engine, GroupBase::Members members) {
            const int channel = engine.transport().open(members.world_ranks, members.channel);
            return std::make_unique<P2pGroup>(engine, std::move(members), channel);
          }};
}

}  // namespace trireme::comm
