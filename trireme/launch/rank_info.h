// Who this process is in its job, however it was started: by trireme's launcher or anything that
// sets torchrun's variables, by mpirun, or alone. Contradictory variables are refused, naming both.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/comm/hmac.h"

namespace trireme::launch {

struct RankInfo {
  int rank = 0;
  int world = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_world = 1;
  std::string master_address;  // of the job's store; empty when there is none
  uint16_t master_port = 0;
  std::optional<comm::Secret> secret;
  std::string started_by = "itself";  // "itself", "a launcher", "mpirun"
};

// Reads the environment; one rank of one without any of the variables.
RankInfo find_rank();

// Tells the launcher why this rank ends, with the error's kind and whole text. True when a launcher
// listens (it shows the error, once for the job); false when the caller should print it.
bool report_failure(const Error& error);

// Joins the ranks of the job. `transport` as in comm::WorldOptions; "auto" under mpirun means
// "mpi".
std::unique_ptr<comm::World> join(const RankInfo& info, const std::string& transport);

}  // namespace trireme::launch
