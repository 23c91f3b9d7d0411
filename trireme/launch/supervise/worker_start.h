// How a launcher starts the worker of one rank: its variables, threads and cores.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/launch/supervise/launch_options.h"
#include "trireme/launch/supervise/worker.h"

namespace trireme::launch {

struct RankPlace {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  int node = 0;
  int attempt = 0;  // how often the job was started before
  std::string job;  // the job's name, the same in all its starts and no other job's
  std::string store_address;
  uint16_t store_port = 0;
  std::string secret_file;
};

WorkerStart worker_start(const LaunchOptions& options, const RankPlace& place);
// Refuses options that no job can have.
void check(const LaunchOptions& options);

}  // namespace trireme::launch
