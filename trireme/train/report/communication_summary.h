// How much of a job's communication was hidden by computing, over all its ranks.
#pragma once

#include <string>

#include "trireme/comm/comm.h"
#include "trireme/exec/run/communication_time.h"

namespace trireme {

struct CommunicationSummary {
  CommunicationTime mean;          // over the ranks
  CommunicationTime most_exposed;  // of the rank with the most exposed time,
  int most_exposed_rank = 0;       // which is this one
};

// From each rank's own time. Collective; `world` may be null: one rank.
CommunicationSummary over_ranks(comm::World* world, const CommunicationTime& mine);

// "12.3 ms a step, 65 % hidden; most exposed on rank 3: 6.1 ms".
std::string to_string(const CommunicationSummary& summary);

}  // namespace trireme
