// How ranks meet when no launcher of Trireme serves their store: rank 0 serves it, and the others learn its address,
// port and secret
//   - through MPI, under mpirun of the MPI that this build is linked with; between hosts without the secret;
//   - on one host, from a file of mode 0600 in a folder of mode 0700, named by the job;
//   - across hosts, from the variables that hold rank 0's address; every rank must be given the
//     secret beforehand. Rank 0 takes the first free one of eight ports, and the others ask at each
//     until one proves that it knows the secret.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trireme/comm/store.h"
#include "trireme/launch/start/start.h"

namespace trireme::launch {

struct Meeting {
  std::shared_ptr<comm::Store> store;  // rank 0's serves the others while it lives
  std::string place;                   // for the log: "rank 0's store at 10.0.0.5:15012"
  std::function<int64_t()>
      refused;  // of rank 0's: how often somebody came who does not know the secret; none: not known
};

// `insecure`: a job on several hosts that was given no secret is let through, with a warning.
Meeting meet(const RankInfo& info, bool insecure, std::chrono::milliseconds deadline);

}  // namespace trireme::launch
