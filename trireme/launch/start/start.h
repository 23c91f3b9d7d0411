// How this process was started, read from environment variables: by which launcher, as which rank of how many, and
// where the others can be found. start.cpp has a table with a row for each launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/stores/hmac.h"

namespace trireme::launch {

// Variables by name; those without a value are left out.
using Environment = std::map<std::string, std::string, std::less<>>;

struct RankInfo {
  int rank = 0;
  int world = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_world = 1;
  std::string started_by = "itself";  // "trireme launch", "torchrun", "mpirun", "srun", ...
  std::string evidence;               // "RANK=1 of WORLD_SIZE=4"; empty when nobody started it

  bool one_host = true;        // it is known that all ranks are on this host
  bool served = false;         // the launcher serves the store at the address and port below
  std::string master_address;  // of the job's store; empty when nothing tells it
  uint16_t master_port = 0;    // the first that rank 0 tries when it serves the store itself
  // What no other job has that this user runs at the same time; empty when nothing tells it.
  std::string job;
  std::optional<comm::Secret> secret;
};

using ReadText = std::function<std::string(const std::string& path)>;

// A function of the variables (and of the rank table's text, if they name one). One rank of one
// without any of them. Throws kInvalidArgument, with variables and values, when they contradict
// each other, or say that this process is one of several but not of how many or where they are.
RankInfo describe_start(const Environment& environment, const ReadText& read);

// What a process is that only the variables of MindSpore's dynamic cluster describe: MS_WORKER or MS_SCHED; "" of any
// other. Such a process starts nothing itself before it has found the scheduler, so describe_start refuses it. Throws
// as that does, and for roles that do not exist here.
std::string dynamic_cluster_role(const Environment& environment);

// The variables by which a process is taken for a rank: a launcher inside another's job clears
// them for its own ranks.
std::vector<std::string> start_variables();

}  // namespace trireme::launch
